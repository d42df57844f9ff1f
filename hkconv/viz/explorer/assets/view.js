// What is chosen, where the nodes are on the disk, and how the plane is moved.

const state = {
  layer: scene.layers.length - 1,
  axes: [0, 1],
  colouring: Object.keys(COLOURINGS)[0],
  selected: -1,
  hovered: -1,
  theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
  shown: { edges: true, centers: true, kernel: true, rings: true },
};

// The isometry from the data to the disk, and the disk's place on the screen beyond filling it.
// It is fitted until somebody moves it.
const view = { isometry: IDENTITY, zoom: 1, shiftX: 0, shiftY: 0, isFitted: true };

const layer = () => scene.layers[state.layer];
const colouring = () => COLOURINGS[state.colouring];

// The nodes in the plane as [u, Re v, Im v], and on the disk as the isometry puts them.
let plane = null;
let centers = null;
let farthest = 0;
const diskX = new Float64Array(scene.size);
const diskY = new Float64Array(scene.size);
const visible = new Uint8Array(scene.size);

function pointOf(node) {
  return [plane[3 * node], 0, plane[3 * node + 1], plane[3 * node + 2]];
}

function enterPlane() {
  plane = layer().coordinates.inPlane(state.axes);
  centers = layer().centers ? layer().centers.inPlane(state.axes) : new Float64Array(0);
  farthest = 0;
  for (let node = 0; node < scene.size; node++) farthest = Math.max(farthest, fromOrigin(pointOf(node)));
}

/** The zoom at which nearly all nodes, and the centres, fill the window; the disk if they fill that. */
function fittingZoom() {
  const radii = Float64Array.from({ length: scene.size }, (_, node) => Math.hypot(...toDisk(pointOf(node)))).sort();
  let reach = radii[Math.ceil(0.995 * (scene.size - 1))];
  for (let at = 0; at < centers.length; at += 3) {
    reach = Math.max(reach, Math.hypot(centers[at + 1], centers[at + 2]) / centers[at]);
  }
  return Math.min(Math.max(0.9 / Math.max(reach, 1e-9), 1), 3);
}

function findVisible() {
  const { groups, hidden } = colouring();
  for (let node = 0; node < scene.size; node++) visible[node] = hidden.has(groups[node]) ? 0 : 1;
}

/** Where all nodes are on the disk now; the same arithmetic as moved() and toDisk(), without an array a node. */
function placeNodes() {
  const [ar, ai, br, bi] = view.isometry;
  for (let node = 0, at = 0; node < scene.size; node++, at += 3) {
    const u = plane[at];
    const x = plane[at + 1];
    const y = plane[at + 2];
    const ur = br * x + bi * y + ar * u;
    const ui = br * y - bi * x - ai * u;
    const vr = ar * x - ai * y + br * u;
    const vi = ar * y + ai * x + bi * u;
    const size = ur * ur + ui * ui;
    diskX[node] = (vr * ur + vi * ui) / size;
    diskY[node] = (vi * ur - vr * ui) / size;
  }
  if (glide === null) return;
  const share = ease(glide.share);
  for (let node = 0; node < scene.size; node++) {
    diskX[node] += (1 - share) * (glide.fromX[node] - diskX[node]);
    diskY[node] += (1 - share) * (glide.fromY[node] - diskY[node]);
  }
}

// Beyond all nodes there is nothing to see, and far beyond no digits are left.
const ROOM_BEYOND = 4;
// A cursor closer to the boundary, in pixels, or beyond it drags by the nearest point inside.
const GRASP = 3;

const reducedMotion = matchMedia('(prefers-reduced-motion: reduce)');
const ease = (share) => share * share * share * (share * (6 * share - 15) + 10);

let motion = null;
let glide = null;

/** Apply a further isometry, unless it leads away from everything. */
function moveBy(isometry) {
  const next = normalized(compose(isometry, view.isometry));
  const away = fromOrigin(moved(inverse(next), [1, 0, 0, 0]));
  const before = fromOrigin(moved(inverse(view.isometry), [1, 0, 0, 0]));
  if (away > farthest + ROOM_BEYOND && away > before) return;
  view.isometry = next;
  view.isFitted = false;
  redraw(MOVING);
}

/** Move along the geodesic until a point of the data is at the centre; the picture's shift and zoom go with it. */
function glideTo(point, { zoomThen = motion?.zoomThen ?? view.zoom, turnsBack = false } = {}) {
  const seen = moved(view.isometry, point);
  const length = fromOrigin(seen);
  motion = {
    seen,
    length,
    isometry: view.isometry,
    turnsBack,
    shift: [view.shiftX, view.shiftY],
    zoom: view.zoom,
    zoomThen,
    start: null,
    duration: reducedMotion.matches ? 0 : 350 + 150 * Math.min(length, 5),
  };
  view.isFitted = false;
  if (motion.duration === 0) moveOn(1);
  redraw(MOVING);
}

function advanceMotion(now) {
  motion.start ??= now;
  moveOn(Math.min((now - motion.start) / motion.duration, 1));
}

/** Be at a share of the way, at 1 at its end. */
function moveOn(share) {
  const eased = ease(share);
  view.isometry = normalized(compose(boostTowards(motion.seen, -motion.length * eased), motion.isometry));
  view.shiftX = motion.shift[0] * (1 - eased);
  view.shiftY = motion.shift[1] * (1 - eased);
  view.zoom = motion.zoom * (motion.zoomThen / motion.zoom) ** eased;
  if (share < 1) return;
  if (motion.turnsBack) {
    // The plane turns on its way; at home it ends as it began.
    beginGlide();
    view.isometry = IDENTITY;
  }
  motion = null;
}

/** Let the nodes go from where they are to where they will be, after a change of layer or axes. */
function beginGlide() {
  if (reducedMotion.matches) return;
  glide = { fromX: diskX.slice(), fromY: diskY.slice(), start: null, share: 0, duration: 550 };
}

function advanceGlide(now) {
  glide.start ??= now;
  glide.share = Math.min((now - glide.start) / glide.duration, 1);
  if (glide.share === 1) glide = null;
}

const withinZooms = (zoom) => Math.min(Math.max(zoom, 0.5), 80);

function zoomBy(factor, x, y) {
  const zoom = withinZooms(view.zoom * factor);
  const ratio = zoom / view.zoom;
  const { centerX, centerY } = geometry();
  const home = [centerX - view.shiftX, centerY - view.shiftY];
  view.shiftX = x - (x - centerX) * ratio - home[0];
  view.shiftY = y - (y - centerY) * ratio - home[1];
  // A disk that fits is shown in the middle.
  if (zoom <= 1) view.shiftX = view.shiftY = 0;
  view.zoom = zoom;
  view.isFitted = false;
  redraw(MOVING);
}

/** Zoom around the middle; on the way to somewhere, change what the way leads to. */
function zoomInMiddle(factor) {
  if (motion) {
    motion.zoomThen = withinZooms(motion.zoomThen * factor);
    view.isFitted = false;
  } else {
    const { clientWidth, clientHeight } = canvases.overlay;
    zoomBy(factor, clientWidth / 2, clientHeight / 2);
  }
}

/** Back to the mean: with the whole disk in sight. */
function goHome() {
  glideTo([1, 0, 0, 0], { zoomThen: 1, turnsBack: true });
}

/** Back to the mean: with all nodes in sight. */
function fit() {
  glideTo([1, 0, 0, 0], { zoomThen: fittingZoom(), turnsBack: true });
  view.isFitted = true;
}
