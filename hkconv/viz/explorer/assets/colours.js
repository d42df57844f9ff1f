// Which colour a node has, by class, by prediction or by correctness, in both themes.

const scene = new Scene(JSON.parse($('data').textContent));

// Told apart by people with any kind of colour vision as far as eight colours can be (after Okabe and Ito).
const PALETTES = {
  light: ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#d55e00', '#56b4e9', '#7a5c12', '#5b4fa3'],
  dark: ['#4aa8e8', '#f2b134', '#2cc295', '#e58fc0', '#f4793f', '#9cdcff', '#bfa14a', '#9d8ff0'],
};
const INKS = {
  light: { unknown: '#9aa3af', edges: '#41526b', rim: '#ffffff', ink: '#18202c', halo: '#ffffff', disk: ['#ffffff', '#f4f7fb'], rings: 'rgb(60 80 110 / 11%)', border: '#aab6c6', accent: '#1f5fbf' },
  dark: { unknown: '#6d7788', edges: '#86a5d8', rim: '#0b0f16', ink: '#f2f5fa', halo: '#0b0f16', disk: ['#161d2a', '#0e131c'], rings: 'rgb(150 180 230 / 10%)', border: '#3b475b', accent: '#7fb2ff' },
};

const rgb = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const hex = (parts) => '#' + parts.map((part) => Math.round(part).toString(16).padStart(2, '0')).join('');

/** A colour a class: the palette first, then hues a golden angle apart in changing lightness. */
function classColour(number, theme) {
  const palette = PALETTES[theme];
  if (number < 0) return INKS[theme].unknown;
  if (number < palette.length) return palette[number];
  const hue = (number * 137.508) % 360;
  const light = (theme === 'dark' ? [0.72, 0.58, 0.82] : [0.45, 0.58, 0.34])[number % 3];
  const part = (shift) => {
    const k = (shift + hue / 30) % 12;
    return 255 * (light - 0.55 * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  };
  return hex([part(0), part(8), part(4)]);
}

/** The ways to colour: for each the groups of the legend, and which one a node belongs to. */
function colourings() {
  const byClass = (numbers) => ({
    names: [...scene.classes, 'unknown'],
    of: (node) => (numbers[node] < 0 ? scene.classes.length : numbers[node]),
    colour: (group, theme) => classColour(group < scene.classes.length ? group : -1, theme),
  });
  const found = {};
  if (scene.labels) found.class = byClass(scene.labels);
  if (scene.predictions) found.prediction = byClass(scene.predictions);
  if (scene.labels && scene.predictions) {
    found.correctness = {
      names: ['right', 'wrong', 'unknown'],
      of: (node) => {
        if (scene.labels[node] < 0 || scene.predictions[node] < 0) return 2;
        return scene.labels[node] === scene.predictions[node] ? 0 : 1;
      },
      colour: (group, theme) => (group === 2 ? INKS[theme].unknown : PALETTES[theme][group === 0 ? 0 : 4]),
    };
  }
  if (Object.keys(found).length === 0) {
    found.none = { names: ['node'], of: () => 0, colour: (_, theme) => PALETTES[theme][0] };
  }
  return found;
}

const COLOURINGS = colourings();
for (const colouring of Object.values(COLOURINGS)) {
  colouring.groups = Int32Array.from({ length: scene.size }, (_, node) => colouring.of(node));
  colouring.counts = new Int32Array(colouring.names.length);
  for (const group of colouring.groups) colouring.counts[group]++;
  colouring.hidden = new Set();
}
