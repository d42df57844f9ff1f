// Three canvases: the disk and its rings, then edges and nodes pixel by pixel, then what is chosen on top.

const canvases = Object.fromEntries(['base', 'pixels', 'overlay'].map((id) => [id, $(id)]));
const contexts = Object.fromEntries(Object.entries(canvases).map(([id, canvas]) => [id, canvas.getContext('2d')]));
let raster = null;
let density = 1;

// A frame draws edges for a while only and leaves the rest to the next, so that the page always answers. While something
// moves each frame begins anew, and what it takes for the rest of its work is taken off the time for edges.
const FRAME_TIME = 14;
const LEAST_EDGE_TIME = 4;
const STILL_EDGE_TIME = 30;
const EDGES_A_LOOK = 256;
const STILL_AFTER = 120;

// Why a frame is drawn: to add edges, because something else is to be seen, or because something moves.
const MORE = 0;
const CHANGED = 1;
const MOVING = 2;

let frame = null;
let reason = MORE;
let stillTimer = null;
const frameTimes = [];
let edgesDrawn = 0;
let otherTime = 0;

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
  redraw(CHANGED);
}

/** Draw with the next frame. What moves is drawn once more in full when it stands still. */
function redraw(why) {
  if (why === MOVING) {
    clearTimeout(stillTimer);
    stillTimer = setTimeout(() => redraw(CHANGED), STILL_AFTER);
  }
  reason = Math.max(reason, why);
  frame ??= requestAnimationFrame(draw);
}

function draw(now) {
  const why = reason;
  frame = null;
  reason = MORE;
  const begun = performance.now();
  if (motion) advanceMotion(now);
  if (glide) advanceGlide(now);
  placeNodes();
  drawBase();
  const edgeTime = drawPixels(why);
  drawOverlay();
  if (tipFor >= 0) placeTip();
  const time = performance.now() - begun;
  otherTime = time - edgeTime;
  frameTimes.push(time);
  if (frameTimes.length > 600) frameTimes.shift();
  if (motion || glide) redraw(MOVING);
  else if (why !== MOVING && state.shown.edges && edgesDrawn < scene.edges.length / 2) redraw(MORE);
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

/** Draw edges and nodes; returns how long the edges took. */
function drawPixels(why) {
  const { centerX, centerY, scale } = geometry();
  const disk = [centerX * density, centerY * density, scale * density];
  if (why !== MORE) {
    raster.clear();
    edgesDrawn = 0;
  }
  const begun = performance.now();
  const time = why === MOVING ? Math.max(FRAME_TIME - otherTime, LEAST_EDGE_TIME) : STILL_EDGE_TIME;
  if (state.shown.edges) drawEdges(disk, begun + time);
  const edgeTime = performance.now() - begun;
  // Of fewer edges than there are, but with as much light.
  const brightness = Math.min(scene.edges.length / 2 / Math.max(edgesDrawn, 1), 5);
  const strength = 0.85 - 0.3 * Math.min(scene.edges.length / 1e5, 1);
  raster.developEdges(rgb(INKS[state.theme].edges), state.selected >= 0 ? 0.6 * strength : strength, brightness);
  drawDots(disk);
  contexts.pixels.putImageData(raster.image, 0, 0);
  return edgeTime;
}

/** Add edges from where the frame before ended, until the time is up. */
function drawEdges([centerX, centerY, scale], end) {
  const { edges } = scene;
  const total = edges.length / 2;
  // So light that a page full of edges keeps its depth.
  const weight = 0.7 * Math.min(1, 30 / Math.sqrt(total + 1)) * density;
  while (edgesDrawn < total) {
    const a = edges[2 * edgesDrawn];
    const b = edges[2 * edgesDrawn + 1];
    if (visible[a] && visible[b]) {
      raster.geodesic(diskX[a], diskY[a], diskX[b], diskY[b], centerX, centerY, scale, weight);
    }
    edgesDrawn++;
    if (edgesDrawn % EDGES_A_LOOK === 0 && performance.now() > end) return;
  }
}

const FADED = 0.3;

function drawDots([centerX, centerY, scale]) {
  const { groups, names, colour } = colouring();
  const colours = names.map((_, group) => rgb(colour(group, state.theme)));
  // What is not chosen steps back towards the colour of the disk.
  const chosen = state.selected < 0 ? null : new Set([state.selected, ...scene.neighboursOf(state.selected)]);
  const ground = rgb(INKS[state.theme].disk[0]);
  const faded = colours.map((parts) => parts.map((part, index) => FADED * part + (1 - FADED) * ground[index]));
  const rim = rgb(INKS[state.theme].rim);
  // Rims tell dots apart; among very many they only take time.
  const rimWidth = scene.size < 8000 ? 0.8 * density : 0;
  const reach = 12 * density;
  // Wrong answers are few and lie on top.
  for (const late of state.colouring === 'correctness' ? [0, 1] : [null]) {
    for (let node = 0; node < scene.size; node++) {
      if (!visible[node] || (late !== null && (groups[node] === 1) !== (late === 1))) continue;
      const x = centerX + diskX[node] * scale;
      const y = centerY - diskY[node] * scale;
      if (x < -reach || y < -reach || x > raster.width + reach || y > raster.height + reach) continue;
      const radius = dotRadius(node) * density * (late === 1 ? 1.25 : 1);
      raster.dot(x, y, radius, (chosen && !chosen.has(node) ? faded : colours)[groups[node]], rim, rimWidth * Math.min(radius / (3 * density), 1));
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
  if (state.shown.centers) drawCenters(context, inks, toScreen);
  if (state.selected >= 0 && state.shown.kernel && layer().kernel) drawKernel(context, inks, toScreen);
  for (const node of [state.hovered, state.selected]) {
    if (node < 0) continue;
    drawRing(context, toScreen([diskX[node], diskY[node]]), dotRadius(node) + 3.5, inks);
  }
}

/** A ring of ink with a halo on both sides, which is seen on dots of any colour. */
function drawRing(context, [x, y], radius, inks) {
  for (const [colour, width] of [[inks.halo, 6], [inks.ink, 2.4]]) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
  }
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
  const places = centersOnDisk().map(toScreen);
  for (const [number, [x, y]] of places.entries()) {
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
  if (places.length <= MOST_LABELS) drawLabels(context, places, inks);
}

/** Names of the centres, each on the side where it meets no other. */
function drawLabels(context, places, inks) {
  const [height, away] = [15, 13];
  const taken = [];
  context.font = '600 12px system-ui, "Noto Sans", "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  context.lineJoin = 'round';
  for (const [number, [x, y]] of places.entries()) {
    const text = scene.className(number);
    const width = context.measureText(text).width;
    const sides = [[x + away, y], [x - away - width, y], [x - width / 2, y - away - 5], [x - width / 2, y + away + 5]];
    const isFree = ([left, middle]) => taken.every(([otherLeft, otherMiddle, otherWidth]) =>
      left > otherLeft + otherWidth || otherLeft > left + width || Math.abs(middle - otherMiddle) > height);
    const [left, middle] = sides.find(isFree) ?? sides[0];
    taken.push([left, middle, width]);
    context.strokeStyle = inks.halo;
    context.lineWidth = 3.5;
    context.strokeText(text, left, middle);
    context.fillStyle = inks.ink;
    context.fillText(text, left, middle);
  }
}

/** Kernel points around the selected node: numbered squares on geodesics from it. */
function drawKernel(context, inks, toScreen) {
  const points = kernelInView().map(toDisk);
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
  return Array.from({ length: centers.length / 3 }, (_, number) => {
    const [u, x, y] = centers.subarray(3 * number);
    return toDisk(moved(view.isometry, [u, 0, x, y]));
  });
}

/** The kernel points around the selected node, as the view has them. */
function kernelInView() {
  if (state.selected < 0 || !layer().kernel) return [];
  return layer().kernel.around(state.selected, state.axes).map((point) => moved(view.isometry, point));
}
