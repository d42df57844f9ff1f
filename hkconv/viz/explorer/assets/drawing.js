// Three canvases: the disk and its rings, then edges and nodes pixel by pixel, then what is chosen on top.

const canvases = Object.fromEntries(['base', 'pixels', 'overlay'].map((id) => [id, $(id)]));
const contexts = Object.fromEntries(Object.entries(canvases).map(([id, canvas]) => [id, canvas.getContext('2d')]));
let raster = null;
let density = 1;

// While something moves, edges are drawn for so long; the rest follows when it stands still.
const EDGE_TIME = 6;
const EDGES_A_LOOK = 256;
const STILL_AFTER = 120;

let frame = null;
let stillTimer = null;
const frameTimes = [];
let edgesDrawn = 0;

/** Centre and scale of the disk in CSS pixels. */
function geometry() {
  const { clientWidth, clientHeight } = canvases.overlay;
  const scale = 0.47 * Math.min(clientWidth, clientHeight) * view.zoom;
  return { centerX: clientWidth / 2 + view.shiftX, centerY: clientHeight / 2 + view.shiftY, scale };
}

function resize() {
  density = Math.min(devicePixelRatio || 1, 2);
  const width = Math.max(Math.round(canvases.overlay.clientWidth * density), 4);
  const height = Math.max(Math.round(canvases.overlay.clientHeight * density), 4);
  for (const canvas of Object.values(canvases)) Object.assign(canvas, { width, height });
  raster = new Raster(width, height);
  redraw(false);
}

/** Draw with the next frame: quickly while something moves, and then once more in full. */
function redraw(moving) {
  clearTimeout(stillTimer);
  if (moving) stillTimer = setTimeout(() => redraw(false), STILL_AFTER);
  if (frame !== null) return;
  frame = requestAnimationFrame((now) => {
    frame = null;
    draw(now, moving);
  });
}

function draw(now, moving) {
  const begun = performance.now();
  if (motion) advanceMotion(now);
  if (glide) advanceGlide(now);
  placeNodes();
  drawBase();
  drawPixels(moving || motion || glide ? EDGE_TIME : Infinity);
  drawOverlay();
  if (tipFor >= 0) placeTip();
  frameTimes.push(performance.now() - begun);
  if (frameTimes.length > 600) frameTimes.shift();
  if (motion || glide) redraw(true);
}

function drawBase() {
  const context = contexts.base;
  const { centerX, centerY, scale } = geometry();
  const inks = INKS[state.theme];
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, canvases.base.clientWidth, canvases.base.clientHeight);
  const fill = context.createRadialGradient(centerX, centerY, 0, centerX, centerY, scale);
  fill.addColorStop(0, inks.disk[0]);
  fill.addColorStop(1, inks.disk[1]);
  context.beginPath();
  context.arc(centerX, centerY, scale, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
  context.save();
  context.clip();
  if (state.shown.rings) drawRings(context, geometry(), inks.rings);
  context.restore();
  context.beginPath();
  context.arc(centerX, centerY, scale, 0, 2 * Math.PI);
  context.strokeStyle = inks.border;
  context.lineWidth = 1.25;
  context.stroke();
}

const RINGS = 12;
const SPOKES = 12;

/** Circles at whole distances around the point that the plane is seen from, and geodesics through it. */
function drawRings(context, { centerX, centerY, scale }, colour) {
  const origin = moved(view.isometry, [1, 0, 0, 0]);
  const [x, y] = toDisk(origin);
  const away = fromOrigin(origin);
  const size = Math.hypot(x, y) || 1;
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let ring = 1; ring <= RINGS; ring++) {
    const far = Math.tanh((away + ring / layer().radius) / 2);
    const near = Math.tanh((away - ring / layer().radius) / 2);
    const middle = (far + near) / 2 / size;
    const radius = ((far - near) / 2) * scale;
    context.moveTo(centerX + middle * x * scale + radius, centerY - middle * y * scale);
    context.arc(centerX + middle * x * scale, centerY - middle * y * scale, radius, 0, 2 * Math.PI);
  }
  for (let spoke = 0; spoke < SPOKES; spoke++) {
    const angle = (2 * Math.PI * spoke) / SPOKES;
    const end = toDisk(moved(view.isometry, [1, 0, Math.cos(angle), Math.sin(angle)]));
    traceGeodesic(context, x, y, ...end);
  }
  context.stroke();
}

/** Add the geodesic of two points of the disk to a path. */
function traceGeodesic(context, ax, ay, bx, by) {
  const { centerX, centerY, scale } = geometry();
  const circle = geodesicCircle(ax, ay, bx, by);
  context.moveTo(centerX + ax * scale, centerY - ay * scale);
  // Canvas loses its precision with arcs of huge circles, which are straight anyway.
  if (circle === null || circle.radius > 500) {
    context.lineTo(centerX + bx * scale, centerY - by * scale);
    return;
  }
  const from = Math.atan2(circle.y - ay, ax - circle.x);
  const to = Math.atan2(circle.y - by, bx - circle.x);
  const backwards = Math.sin(to - from) < 0;
  context.arc(centerX + circle.x * scale, centerY - circle.y * scale, circle.radius * scale, from, to, backwards);
}

/** The radius of a dot: smaller where there are many, and towards the boundary as all lengths. */
function dotRadius(node) {
  const base = scene.size < 400 ? 5.2 : scene.size < 2500 ? 4 : scene.size < 8000 ? 3 : 2.3;
  const shrink = 0.35 + 0.65 * (1 - diskX[node] ** 2 - diskY[node] ** 2);
  return base * shrink * Math.min(Math.max(view.zoom, 0.7) ** 0.4, 3);
}

function drawPixels(time) {
  const { centerX, centerY, scale } = geometry();
  const disk = [centerX * density, centerY * density, scale * density];
  raster.clear();
  if (state.shown.edges) drawEdges(disk, time);
  raster.developEdges(rgb(INKS[state.theme].edges), state.selected >= 0 ? 0.45 : 0.85);
  drawDots(disk);
  contexts.pixels.putImageData(raster.image, 0, 0);
}

function drawEdges([centerX, centerY, scale], time) {
  const { edges } = scene;
  const end = performance.now() + time;
  const total = edges.length / 2;
  // So light that a page full of edges keeps its depth.
  const weight = 0.7 * Math.min(1, 30 / Math.sqrt(total + 1)) * density;
  edgesDrawn = 0;
  for (let edge = 0; edge < edges.length; edge += 2) {
    const a = edges[edge];
    const b = edges[edge + 1];
    if (visible[a] && visible[b]) {
      raster.geodesic(diskX[a], diskY[a], diskX[b], diskY[b], centerX, centerY, scale, weight);
    }
    edgesDrawn++;
    if (edgesDrawn % EDGES_A_LOOK === 0 && performance.now() > end) break;
  }
  // Fewer edges than there are, but as much light.
  if (edgesDrawn < total) raster.brighten(Math.min(total / edgesDrawn, 4));
}

function drawDots([centerX, centerY, scale]) {
  const { groups, names, colour } = colouring();
  const colours = names.map((_, group) => rgb(colour(group, state.theme)));
  const rim = rgb(INKS[state.theme].rim);
  const rimWidth = (scene.size < 8000 ? 0.8 : 0.4) * density;
  const reach = 12 * density;
  // Wrong answers are few and lie on top.
  for (const late of state.colouring === 'correctness' ? [0, 1] : [null]) {
    for (let node = 0; node < scene.size; node++) {
      if (!visible[node] || (late !== null && (groups[node] === 1) !== (late === 1))) continue;
      const x = centerX + diskX[node] * scale;
      const y = centerY - diskY[node] * scale;
      if (x < -reach || y < -reach || x > raster.width + reach || y > raster.height + reach) continue;
      raster.dot(x, y, dotRadius(node) * density * (late === 1 ? 1.25 : 1), colours[groups[node]], rim, rimWidth);
    }
  }
}

// ---- on top

const MOST_HIGHLIGHTED = 600;
const MOST_LABELS = 24;

function drawOverlay() {
  const context = contexts.overlay;
  const { centerX, centerY, scale } = geometry();
  const inks = INKS[state.theme];
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, canvases.overlay.clientWidth, canvases.overlay.clientHeight);
  const toScreen = ([x, y]) => [centerX + x * scale, centerY - y * scale];
  if (state.selected >= 0) drawNeighbourhood(context, inks, toScreen);
  if (state.shown.centers && layer().centers) drawCenters(context, inks, toScreen);
  if (state.selected >= 0 && state.shown.kernel && layer().kernel) drawKernel(context, inks, toScreen);
  for (const node of [state.hovered, state.selected]) {
    if (node < 0) continue;
    drawRing(context, toScreen([diskX[node], diskY[node]]), dotRadius(node) + 3.5, node === state.selected ? inks.accent : inks.ink);
  }
}

function drawRing(context, [x, y], radius, colour) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.strokeStyle = colour;
  context.lineWidth = 2.2;
  context.stroke();
}

/** The edges of the selected node, and its neighbours once more above all others. */
function drawNeighbourhood(context, inks, toScreen) {
  const node = state.selected;
  const neighbours = [...scene.neighboursOf(node).subarray(0, MOST_HIGHLIGHTED)].filter((other) => visible[other]);
  context.beginPath();
  for (const other of neighbours) traceGeodesic(context, diskX[node], diskY[node], diskX[other], diskY[other]);
  context.strokeStyle = inks.accent;
  context.globalAlpha = neighbours.length > 60 ? 0.45 : 0.85;
  context.lineWidth = 1.6;
  context.stroke();
  context.globalAlpha = 1;
  const { groups, colour } = colouring();
  for (const dot of [...neighbours, node]) {
    context.beginPath();
    context.arc(...toScreen([diskX[dot], diskY[dot]]), dotRadius(dot) + 0.8, 0, 2 * Math.PI);
    context.fillStyle = colour(groups[dot], state.theme);
    context.fill();
    context.strokeStyle = inks.rim;
    context.lineWidth = 1;
    context.stroke();
  }
}

/** Class centres as diamonds, with their names where there are not too many. */
function drawCenters(context, inks, toScreen) {
  const centers = centersOnDisk();
  for (const [number, center] of centers.entries()) {
    const [x, y] = toScreen(center);
    const size = 8;
    context.beginPath();
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
    context.closePath();
    context.fillStyle = classColour(number, state.theme);
    context.fill();
    context.strokeStyle = inks.ink;
    context.lineWidth = 1.6;
    context.stroke();
  }
  if (centers.length > MOST_LABELS) return;
  for (const [number, center] of centers.entries()) drawText(context, scene.className(number), toScreen(center), 12, inks);
}

function drawText(context, text, [x, y], away, inks) {
  context.font = '600 12px system-ui, "Noto Sans", "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  context.lineJoin = 'round';
  context.strokeStyle = inks.halo;
  context.lineWidth = 3.5;
  context.strokeText(text, x + away, y);
  context.fillStyle = inks.ink;
  context.fillText(text, x + away, y);
}

/** Kernel points around the selected node: numbered squares on geodesics from it. */
function drawKernel(context, inks, toScreen) {
  const points = kernelOnDisk();
  const node = state.selected;
  context.beginPath();
  for (const point of points) traceGeodesic(context, diskX[node], diskY[node], ...point);
  context.setLineDash([5, 4]);
  context.strokeStyle = inks.ink;
  context.lineWidth = 1.3;
  context.stroke();
  context.setLineDash([]);
  for (const [number, point] of points.entries()) {
    const [x, y] = toScreen(point);
    context.beginPath();
    context.roundRect(x - 8, y - 8, 16, 16, 4);
    context.fillStyle = inks.halo;
    context.fill();
    context.strokeStyle = inks.ink;
    context.lineWidth = 1.5;
    context.stroke();
    context.fillStyle = inks.ink;
    context.font = '600 10px system-ui, "Noto Sans", "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    context.fillText(String(number + 1), x, y + 0.5);
    context.textAlign = 'start';
  }
}

function centersOnDisk() {
  const points = layer().centers.inPlane(state.axes);
  return Array.from({ length: points.length / 3 }, (_, number) => {
    const [u, x, y] = points.subarray(3 * number);
    return toDisk(moved(view.isometry, [u, 0, x, y]));
  });
}

function kernelOnDisk() {
  if (state.selected < 0 || !layer().kernel) return [];
  return layer().kernel.around(state.selected, state.axes).map((point) => toDisk(moved(view.isometry, point)));
}
