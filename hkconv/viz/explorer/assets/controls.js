// The controls around the disk: pointer, keys, panel.

const count = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const fixed = (number) => (number === null ? '–' : number.toFixed(3));

// ---- choosing

function select(node, { recentre = true } = {}) {
  state.selected = node;
  if (node >= 0 && recentre) glideTo(pointOf(node));
  $('status').textContent = node < 0 ? '' : `Selected ${scene.nameOf(node)}, ${describeClass(node)}`;
  showSelection();
  redraw(CHANGED);
}

function describeClass(node) {
  const known = [];
  if (scene.labels) known.push(`label ${scene.className(scene.labels[node])}`);
  if (scene.predictions) known.push(`prediction ${scene.className(scene.predictions[node])}`);
  return known.join(', ') || count(scene.neighboursOf(node).length, 'neighbour');
}

function chooseLayer(number) {
  if (number === state.layer || number < 0 || number >= scene.layers.length) return;
  changePlane(() => {
    state.layer = number;
    state.axes = state.axes.every((axis) => axis < layer().axes) ? state.axes : [0, 1];
  });
}

function chooseAxes(axes) {
  if (axes[0] !== axes[1]) changePlane(() => { state.axes = axes; });
  else showLayer();
}

/** Go to another layer or other axes. The selected node stays where it is on the disk, the others go around it. */
function changePlane(change) {
  if (motion) moveOn(1);
  beginGlide();
  const before = state.selected >= 0 ? moved(view.isometry, pointOf(state.selected)) : null;
  change();
  enterPlane();
  if (before) {
    const now = moved(view.isometry, pointOf(state.selected));
    view.isometry = normalized(compose(translation(now, before), view.isometry));
  }
  if (view.isFitted) fit();
  showLayer();
  showSelection();
  redraw(MOVING);
}

function chooseColouring(name) {
  if (!(name in COLOURINGS)) return;
  state.colouring = name;
  findVisible();
  showColours();
  redraw(CHANGED);
}

function toggleGroup(group, alone) {
  const { hidden, names, counts } = colouring();
  const others = names.map((_, other) => other).filter((other) => other !== group && counts[other] > 0);
  if (alone) {
    const isAlone = !hidden.has(group) && others.every((other) => hidden.has(other));
    hidden.clear();
    if (!isAlone) others.forEach((other) => hidden.add(other));
  } else if (!hidden.delete(group)) {
    hidden.add(group);
  }
  findVisible();
  showLegend();
  redraw(CHANGED);
}

function toggleShown(name) {
  state.shown[name] = !state.shown[name];
  showShown();
  redraw(CHANGED);
}

function setTheme(theme) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  showLegend();
  showSelection();
  redraw(CHANGED);
}

// ---- the panel

function showFacts() {
  document.title = `${scene.title} · hkconv explorer`;
  $('title').textContent = scene.title;
  $('note').textContent = scene.note;
  $('note').hidden = scene.note === '';
  const facts = [count(scene.size, 'node'), count(scene.edges.length / 2, 'edge')];
  if (scene.classes.length) facts.push(scene.classes.length === 1 ? '1 class' : `${scene.classes.length} classes`);
  $('facts').textContent = facts.join(' · ');
}

/** A row of buttons of which one is chosen. */
function fillSegments(id, entries, chosen, choose) {
  $(id).classList.toggle('many', entries.length > 4);
  $(id).replaceChildren(...entries.map(([value, text]) => {
    const button = make('button', { text, role: 'radio', 'aria-checked': String(value === chosen), title: text });
    button.addEventListener('click', () => choose(value));
    return button;
  }));
}

function showLayer() {
  const { axes, dim, kept, radius } = layer();
  fillSegments('layers', scene.layers.map(({ name }, number) => [number, name]), state.layer, chooseLayer);
  $('layers').hidden = scene.layers.length === 1;
  $('axes').hidden = dim <= 2;
  for (const [side, id] of ['axis-x', 'axis-y'].entries()) {
    $(id).replaceChildren(...Array.from({ length: axes }, (_, axis) =>
      make('option', { text: `${axis + 1} · ${percent(kept[axis][axis])}`, value: axis })));
    $(id).value = String(state.axes[side]);
  }
  const curvature = radius === 1 ? '' : `, curvature ${(-1 / radius ** 2).toPrecision(3)}`;
  const share = percent(kept[state.axes[0]][state.axes[1]]);
  $('kept').textContent = dim <= 2
    ? `Points of ${dim === 1 ? 'one dimension' : 'two dimensions'}, as they are${curvature}.`
    : `${dim} dimensions${curvature}. This plane through the Fréchet mean keeps ${share} of the variance.`;
  showCaption();
  showShown();
}

/** How far distances on the disk can be believed. */
function showCaption() {
  const { agreement, dim } = layer();
  const found = agreement[state.axes[0]][state.axes[1]];
  $('caption').textContent = dim <= 2
    ? 'Hyperbolic distances on this disk are the true ones.'
    : found === null
      ? `The disk shows two of ${dim} dimensions.`
      : `The disk shows two of ${dim} dimensions: the rank correlation of its distances with the true ones is ${found.toFixed(2)} (1 is perfect).`;
}

function showColours() {
  fillSegments('colours', Object.keys(COLOURINGS).map((name) => [name, name]), state.colouring, chooseColouring);
  $('colours').hidden = Object.keys(COLOURINGS).length === 1;
  showLegend();
}

function showLegend() {
  const { names, counts, hidden, colour } = colouring();
  const focused = [...$('legend').children].findIndex((entry) => entry.contains(document.activeElement));
  const shown = names.map((_, group) => group).filter((group) => counts[group] > 0);
  $('legend').replaceChildren(...shown.map((group) => {
    const swatch = make('span', { className: 'swatch' });
    swatch.style.background = colour(group, state.theme);
    const button = make('button', { 'aria-pressed': String(!hidden.has(group)), title: `${names[group]}: click to hide or show, with Shift to see it alone` },
      swatch, make('span', { className: 'name', text: names[group] }), make('span', { className: 'count', text: counts[group].toLocaleString('en') }));
    button.addEventListener('click', (event) => toggleGroup(group, event.shiftKey));
    return make('li', {}, button);
  }));
  if (focused >= 0) $('legend').children[focused].firstChild.focus();
}

function showShown() {
  const entries = [['rings', 'distance rings']];
  if (scene.edges.length) entries.unshift(['edges', 'edges']);
  if (layer().centers) entries.push(['centers', 'class centres']);
  if (layer().kernel) entries.push(['kernel', 'kernel points']);
  $('shown').replaceChildren(...entries.map(([name, text]) => {
    const button = make('button', { text, 'aria-pressed': String(state.shown[name]) });
    button.addEventListener('click', () => toggleShown(name));
    return button;
  }));
}

/** What is known of a node, as pairs of words. */
function describe(node) {
  const entries = [[scene.names ? 'number' : 'id', String(node)]];
  if (scene.labels) entries.push(['label', scene.className(scene.labels[node])]);
  if (scene.predictions) {
    const wrong = scene.labels && scene.labels[node] >= 0 && scene.labels[node] !== scene.predictions[node];
    entries.push(['prediction', scene.className(scene.predictions[node]), wrong]);
  }
  if (scene.parts && scene.parts[node] >= 0) entries.push(['part', scene.partNames[scene.parts[node]]]);
  if (scene.edges.length) entries.push(['neighbours', scene.neighboursOf(node).length.toLocaleString('en')]);
  const from = layer().dim <= 2 ? 'origin' : 'mean';
  entries.push([`distance to ${from}`, fixed(layer().coordinates.fromMean(node) * layer().radius)]);
  return entries;
}

function fillDetails(list, entries) {
  list.replaceChildren(...entries.flatMap(([name, text, wrong]) =>
    [make('dt', { text: name }), make('dd', { text, className: wrong ? 'wrong' : '' })]));
}

const MOST_NEIGHBOURS = 14;

function showSelection() {
  const node = state.selected;
  $('selection').hidden = node < 0;
  if (node < 0) return;
  $('chosen').textContent = scene.nameOf(node);
  fillDetails($('details'), describe(node));
  showDistances(node);
  const neighbours = [...scene.neighboursOf(node)];
  $('neighbours').replaceChildren(...neighbours.slice(0, MOST_NEIGHBOURS).map((other) => {
    const button = make('button', { text: scene.nameOf(other), title: scene.nameOf(other) });
    button.addEventListener('click', () => select(other));
    return button;
  }));
  const more = neighbours.length - MOST_NEIGHBOURS;
  if (more > 0) $('neighbours').append(make('span', { text: `and ${more.toLocaleString('en')} more` }));
}

const MOST_BARS = 8;

/** The distances to the class centres of the layer, nearest first: what the network compares, there or in all layers. */
function showDistances(node) {
  const numbers = Array.from({ length: layer().numCenters }, (_, number) => number);
  numbers.sort((a, b) => layer().toCenter(node, a) - layer().toCenter(node, b));
  const nearest = numbers.slice(0, MOST_BARS);
  const longest = Math.max(...nearest.map((number) => layer().toCenter(node, number)), 1e-9);
  $('distances').replaceChildren(...nearest.map((number) => {
    const length = make('i');
    length.style.width = `${(100 * layer().toCenter(node, number)) / longest}%`;
    length.style.background = classColour(number, state.theme);
    return make('div', { className: 'bar', title: 'distance to the class centre in all dimensions' },
      length, make('span', { text: `to centre of ${scene.className(number)}` }), make('span', { text: fixed(layer().toCenter(node, number)) }));
  }));
}

// ---- the tip at the cursor

let tipFor = -1;

function showTip(node) {
  tipFor = node;
  $('tip').hidden = node < 0;
  if (node < 0) return;
  const entries = describe(node);
  const units = layer().radius;
  for (const [numbers, name] of [[scene.labels, 'label'], [scene.predictions, 'prediction']]) {
    const found = numbers ? layer().toCenter(node, numbers[node]) : null;
    if (found !== null) entries.push([`distance to centre of ${name}`, fixed(found)]);
  }
  if (state.selected >= 0 && state.selected !== node) {
    const found = distance(pointOf(node), pointOf(state.selected)) * units;
    entries.push([layer().dim <= 2 ? 'distance to selected' : 'to selected, in this plane', fixed(found)]);
  }
  const list = make('dl');
  fillDetails(list, entries);
  $('tip').replaceChildren(make('strong', { text: scene.nameOf(node) }), list);
  placeTip();
}

function placeTip() {
  const { centerX, centerY, scale } = geometry();
  const { offsetWidth, offsetHeight } = $('tip');
  const stage = $('stage');
  const x = centerX + diskX[tipFor] * scale + 16;
  const y = centerY - diskY[tipFor] * scale + 16;
  const left = x + offsetWidth > stage.clientWidth - 8 ? x - offsetWidth - 32 : x;
  const top = y + offsetHeight > stage.clientHeight - 8 ? y - offsetHeight - 32 : y;
  $('tip').style.transform = `translate(${Math.max(left, 8)}px, ${Math.max(top, 8)}px)`;
}

// ---- pointer

const overlay = $('overlay');
const pointers = new Map();
let grasped = null;
let pressed = null;

function place(event) {
  const box = overlay.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** The point of the plane under the cursor, as the disk shows it. */
function underCursor([x, y]) {
  const { centerX, centerY, scale } = geometry();
  const dx = (x - centerX) / scale;
  const dy = (centerY - y) / scale;
  const size = Math.hypot(dx, dy);
  const most = 1 - GRASP / scale;
  const inside = size > most ? most / size : 1;
  return fromDisk(dx * inside, dy * inside);
}

function nearestNode([x, y], reach) {
  const { centerX, centerY, scale } = geometry();
  let found = -1;
  let least = reach * reach;
  for (let node = 0; node < scene.size; node++) {
    if (!visible[node]) continue;
    const square = (centerX + diskX[node] * scale - x) ** 2 + (centerY - diskY[node] * scale - y) ** 2;
    if (square < least) [found, least] = [node, square];
  }
  return found;
}

const HOVER_REACH = 10;
const CLICK_TOLERANCE = 4;

function hover(node) {
  if (node === state.hovered) return;
  state.hovered = node;
  overlay.classList.toggle('over', node >= 0);
  showTip(node);
  if (frame === null) drawOverlay();
}

function pinch(event) {
  const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  const before = pointers.get(event.pointerId);
  const now = place(event);
  const ratio = Math.hypot(now[0] - other[0], now[1] - other[1]) / Math.hypot(before[0] - other[0], before[1] - other[1]);
  if (ratio > 0 && Number.isFinite(ratio)) zoomBy(ratio, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}

overlay.addEventListener('pointerdown', (event) => {
  if (event.button !== 0) return;
  overlay.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, place(event));
  pressed = pointers.size === 1 ? place(event) : null;
  motion = null;
  grasped = moved(inverse(view.isometry), underCursor(place(event)));
});

overlay.addEventListener('pointermove', (event) => {
  const at = place(event);
  if (!pointers.has(event.pointerId)) {
    hover(nearestNode(at, HOVER_REACH));
    return;
  }
  if (pointers.size === 2) {
    pinch(event);
  } else {
    if (pressed && Math.hypot(at[0] - pressed[0], at[1] - pressed[1]) > CLICK_TOLERANCE) {
      pressed = null;
      overlay.classList.add('dragging');
      hover(-1);
    }
    if (!pressed) moveBy(translation(moved(view.isometry, grasped), underCursor(at)));
  }
  pointers.set(event.pointerId, at);
});

function release(event) {
  if (!pointers.delete(event.pointerId)) return;
  overlay.classList.remove('dragging');
  if (event.type === 'pointerup' && pressed) {
    const node = nearestNode(pressed, HOVER_REACH);
    if (node >= 0) select(node);
  }
  pressed = null;
}

overlay.addEventListener('pointerup', release);
overlay.addEventListener('pointercancel', release);
overlay.addEventListener('pointerleave', () => hover(-1));
overlay.addEventListener('wheel', (event) => {
  event.preventDefault();
  motion = null;
  // Wheels count in lines or in pixels.
  const lines = event.deltaMode === 1 ? event.deltaY : event.deltaY / 40;
  zoomBy(Math.exp(-0.12 * Math.max(-6, Math.min(lines, 6))), ...place(event));
}, { passive: false });

// ---- search

const MOST_MATCHES = 8;
let matches = [];
let marked = 0;

function showMatches() {
  const text = $('search').value;
  matches = scene.search(text, MOST_MATCHES);
  marked = 0;
  const isOpen = text.trim() !== '';
  $('matches').hidden = !isOpen;
  $('search').setAttribute('aria-expanded', String(isOpen));
  if (isOpen && matches.length === 0) {
    $('matches').replaceChildren(make('li', { text: 'no such node', className: 'none' }));
    return;
  }
  $('matches').replaceChildren(...matches.map((node, number) => {
    const of = scene.labels ? scene.className(scene.labels[node]) : '';
    const entry = make('li', { role: 'option', 'aria-selected': String(number === marked) },
      make('span', { className: 'name', text: scene.nameOf(node) }), make('span', { className: 'of', text: of }));
    // Before the field loses the focus, which closes the list.
    entry.addEventListener('pointerdown', (event) => {
      event.preventDefault();
      acceptMatch(node);
    });
    return entry;
  }));
}

function markMatch(step) {
  if (matches.length === 0) return;
  marked = (marked + step + matches.length) % matches.length;
  [...$('matches').children].forEach((entry, number) => entry.setAttribute('aria-selected', String(number === marked)));
}

function acceptMatch(node) {
  closeMatches();
  overlay.focus({ focusVisible: false });
  select(node);
}

function closeMatches() {
  $('search').value = '';
  showMatches();
}

$('search').addEventListener('input', showMatches);
$('search').addEventListener('blur', () => { $('matches').hidden = true; });
$('search').addEventListener('focus', showMatches);
$('search').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') markMatch(1);
  else if (event.key === 'ArrowUp') markMatch(-1);
  else if (event.key === 'Enter' && matches.length) acceptMatch(matches[marked]);
  else if (event.key === 'Escape') {
    closeMatches();
    overlay.focus({ focusVisible: false });
  } else return;
  event.preventDefault();
});

// ---- keys

const STEP = 0.25;

function pan(x, y) {
  motion = null;
  moveBy(boost(fromSpace(-x * Math.sinh(STEP), -y * Math.sinh(STEP))));
}

// The node whose neighbours are being visited, and at which of them.
const round = { centre: -1, at: -1 };

/** Select the next neighbour of the node that was selected by other means. */
function selectNeighbour(step) {
  if (state.selected < 0) return;
  const isVisiting = round.centre >= 0 && scene.neighboursOf(round.centre)[round.at] === state.selected;
  if (!isVisiting) Object.assign(round, { centre: state.selected, at: step > 0 ? -1 : 0 });
  const neighbours = scene.neighboursOf(round.centre);
  if (neighbours.length === 0) return;
  round.at = (round.at + step + neighbours.length) % neighbours.length;
  select(neighbours[round.at]);
}

function nextColouring() {
  const names = Object.keys(COLOURINGS);
  chooseColouring(names[(names.indexOf(state.colouring) + 1) % names.length]);
}

const KEYS = [
  [['ArrowLeft'], '←', 'look to the left', () => pan(-1, 0)],
  [['ArrowRight'], '→', 'look to the right', () => pan(1, 0)],
  [['ArrowUp'], '↑', 'look up', () => pan(0, 1)],
  [['ArrowDown'], '↓', 'look down', () => pan(0, -1)],
  [['+', '='], '+', 'zoom in', () => zoomInMiddle(1.25)],
  [['-'], '−', 'zoom out', () => zoomInMiddle(0.8)],
  [['0', 'Home'], '0', 'the whole disk', goHome],
  [['f'], 'f', 'fit all nodes', fit],
  [['Enter'], 'Enter', 'select the node nearest to the middle', () => select(nearestNode([overlay.clientWidth / 2, overlay.clientHeight / 2], Infinity))],
  [['n'], 'n', 'next neighbour of the selected node', () => selectNeighbour(1)],
  [['p'], 'p', 'previous neighbour', () => selectNeighbour(-1)],
  [['Escape'], 'Esc', 'deselect', () => select(-1)],
  [['/'], '/', 'find a node', () => $('search').focus()],
  [['['], '[', 'layer before', () => chooseLayer(state.layer - 1)],
  [[']'], ']', 'layer after', () => chooseLayer(state.layer + 1)],
  [['c'], 'c', 'next colouring', nextColouring],
  [['e'], 'e', 'edges', () => toggleShown('edges')],
  [['x'], 'x', 'class centres', () => toggleShown('centers')],
  [['k'], 'k', 'kernel points', () => toggleShown('kernel')],
  [['r'], 'r', 'distance rings', () => toggleShown('rings')],
  [['t'], 't', 'dark or light', () => setTheme(state.theme === 'dark' ? 'light' : 'dark')],
  [['?'], '?', 'these keys', () => $('keys').showModal()],
];

document.addEventListener('keydown', (event) => {
  const { target } = event;
  const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement || $('keys').open;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Enter' && target instanceof HTMLButtonElement) return;
  const found = KEYS.find(([names]) => names.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found[3]();
});

// ---- the rest of the buttons, and the start

$('zoom-in').addEventListener('click', () => zoomInMiddle(1.25));
$('zoom-out').addEventListener('click', () => zoomInMiddle(0.8));
$('home').addEventListener('click', goHome);
$('fit').addEventListener('click', fit);
$('theme').addEventListener('click', () => setTheme(state.theme === 'dark' ? 'light' : 'dark'));
$('help').addEventListener('click', () => $('keys').showModal());
$('deselect').addEventListener('click', () => select(-1));
$('axis-x').addEventListener('change', () => chooseAxes([Number($('axis-x').value), state.axes[1]]));
$('axis-y').addEventListener('change', () => chooseAxes([state.axes[0], Number($('axis-y').value)]));
$('key-list').append(...KEYS.flatMap(([, sign, text]) => [make('dt', {}, make('kbd', { text: sign })), make('dd', { text })]));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => setTheme(event.matches ? 'dark' : 'light'));
new ResizeObserver(resize).observe(overlay);

// What programs may read of the page. Nothing here changes it.
Object.defineProperty(window, 'hkconv', {
  value: Object.freeze({
    size: scene.size,
    /** Where a node is as the view has it, in the Lorentz model of curvature -1. */
    lorentz: (node) => toLorentz(moved(view.isometry, pointOf(node))),
    /** Where a node is on the screen, in pixels of the window. */
    screen: (node) => {
      const { centerX, centerY, scale } = geometry();
      const box = overlay.getBoundingClientRect();
      return [box.left + centerX + diskX[node] * scale, box.top + centerY - diskY[node] * scale];
    },
    /** Kernel points around the selected node as the view has them, in the Lorentz model of curvature -1. */
    kernel: () => kernelInView().map(toLorentz),
    /** Class centres on the disk. */
    centers: centersOnDisk,
    state: () => ({
      layer: layer().name, axes: [...state.axes], colouring: state.colouring, selected: state.selected,
      hovered: state.hovered, theme: state.theme, zoom: view.zoom, shown: { ...state.shown },
      visible: visible.reduce((sum, one) => sum + one, 0), edgesDrawn, isMoving: Boolean(motion || glide || frame !== null),
    }),
    /** How long the last frames took to draw, in milliseconds. */
    frameTimes: () => [...frameTimes],
  }),
});

document.documentElement.dataset.theme = state.theme;
enterPlane();
view.zoom = fittingZoom();
findVisible();
showFacts();
showLayer();
showColours();
resize();
