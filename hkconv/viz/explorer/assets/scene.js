// The data of the page: nodes, edges and layers, and where they lie in the chosen plane.

function decode(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Kind(bytes.buffer);
}

/** Points along the axes of a layer, brought to the plane of two of them: as [Re u, Re v, Im v] each. */
class Coordinates {
  constructor({ along, rest }, axes) {
    this.along = decode(along, Float32Array);
    this.rest = decode(rest, Float32Array);
    this.axes = axes;
  }

  inPlane([first, second]) {
    const { along, rest, axes } = this;
    const points = new Float64Array(rest.length * 3);
    for (let index = 0; index < rest.length; index++) {
      const start = index * axes;
      let dropped = 1 + rest[index] ** 2;
      for (let axis = 0; axis < axes; axis++) {
        if (axis !== first && axis !== second) dropped += along[start + axis] ** 2;
      }
      const scale = 1 / Math.sqrt(dropped);
      const [u, , x, y] = fromSpace(along[start + first] * scale, along[start + second] * scale);
      points.set([u, x, y], index * 3);
    }
    return points;
  }

  /** The distance of a point from the mean in all dimensions. */
  fromMean(index) {
    let square = this.rest[index] ** 2;
    for (let axis = 0; axis < this.axes; axis++) square += this.along[index * this.axes + axis] ** 2;
    return Math.asinh(Math.sqrt(square));
  }
}

/** Kernel points of the convolution that reads a layer. */
class Kernel {
  constructor(data, layer) {
    Object.assign(this, data);
    this.layer = layer;
    this.size = data.times.length;
    this.pointTimes = decode(data.pointTimes, Float32Array);
    this.onPoints = decode(data.onPoints, Float32Array);
  }

  /** The kernel points around a node, in the plane of two axes. */
  around(node, axes) {
    return Array.from({ length: this.size }, (_, number) => this.place(number, node, axes));
  }

  // T(k) = [t, k + c x] with t = x_t k_t + x.k and c = (k_t + t) / (1 + x_t); seen from the mean m it is
  // [s, k + c x - e m] with s = m_t t - m.k - c m.x and e = (t + s) / (1 + m_t). Only products with axes are needed.
  place(number, node, [first, second]) {
    const { layer, meanTime } = this;
    const coordinates = layer.coordinates;
    const pointTime = this.pointTimes[node];
    const seenTime = Math.cosh(coordinates.fromMean(node));
    const time = pointTime * this.times[number] + this.onPoints[node * this.size + number];
    const factor = (this.times[number] + time) / (1 + pointTime);
    const pointOnMean = meanTime * pointTime - seenTime;
    const newTime = meanTime * time - this.onMean[number] - factor * pointOnMean;
    const back = (time + newTime) / (1 + meanTime);
    const backOfPoint = (pointTime + seenTime) / (1 + meanTime);
    const along = (axis) => {
      const point = coordinates.along[node * layer.axes + axis] + backOfPoint * this.mean[axis];
      return this.along[number][axis] + factor * point - back * this.mean[axis];
    };
    const x = along(first);
    const y = along(second);
    // In two dimensions nothing is dropped.
    const scale = layer.dim <= 2 ? 1 : 1 / Math.sqrt(Math.max(newTime * newTime - x * x - y * y, 1));
    return fromSpace(x * scale, y * scale);
  }
}

class Layer {
  constructor(data) {
    this.name = data.name;
    this.dim = data.dim;
    this.radius = data.radius;
    this.axes = data.axes;
    this.kept = data.kept;
    this.agreement = data.agreement;
    this.coordinates = new Coordinates(data.points, data.axes);
    this.centers = data.centers && new Coordinates(data.centers, data.axes);
    this.centerDistances = data.centers && decode(data.centers.distances, Float32Array);
    this.kernel = data.kernel && new Kernel(data.kernel, this);
  }

  get numCenters() {
    return this.centers ? this.centers.rest.length : 0;
  }

  /** The distance of a node from the centre of a class in all dimensions, or null. */
  toCenter(node, number) {
    const known = number >= 0 && number < this.numCenters;
    return known ? this.centerDistances[node * this.numCenters + number] : null;
  }
}

class Scene {
  constructor(data) {
    this.title = data.title;
    this.note = data.note;
    this.size = data.size;
    this.names = data.names;
    this.classes = data.classes;
    this.labels = data.labels && decode(data.labels, Int32Array);
    this.predictions = data.predictions && decode(data.predictions, Int32Array);
    this.parts = data.parts && decode(data.parts, Int32Array);
    this.partNames = data.partNames;
    this.edges = data.edges ? shuffledPairs(decode(data.edges, Int32Array)) : new Int32Array(0);
    this.layers = data.layers.map((layer) => new Layer(layer));
    this.listNeighbours();
  }

  nameOf(node) {
    return this.names ? this.names[node] : `node ${node}`;
  }

  className(number) {
    return number >= 0 && number < this.classes.length ? this.classes[number] : 'unknown';
  }

  neighboursOf(node) {
    return this.neighbours.subarray(this.starts[node], this.starts[node + 1]);
  }

  listNeighbours() {
    this.starts = new Int32Array(this.size + 1);
    for (const node of this.edges) this.starts[node + 1]++;
    for (let node = 0; node < this.size; node++) this.starts[node + 1] += this.starts[node];
    const next = this.starts.slice(0, -1);
    this.neighbours = new Int32Array(this.edges.length);
    for (let edge = 0; edge < this.edges.length; edge += 2) {
      const [a, b] = [this.edges[edge], this.edges[edge + 1]];
      this.neighbours[next[a]++] = b;
      this.neighbours[next[b]++] = a;
    }
  }

  /** Nodes whose number or name fits a text: exact ones first, then beginnings, then parts. */
  search(text, most) {
    const wanted = text.trim().toLowerCase();
    if (wanted === '') return [];
    const ranks = [[], [], []];
    for (let node = 0; node < this.size; node++) {
      const number = String(node);
      const name = this.names ? this.names[node].toLowerCase() : number;
      if (number === wanted || name === wanted) ranks[0].push(node);
      else if (number.startsWith(wanted) || name.startsWith(wanted)) ranks[1].push(node);
      else if (name.includes(wanted)) ranks[2].push(node);
    }
    return ranks.flat().slice(0, most);
  }
}

/** Pairs in a mixed but fixed order, so that the first few of them look like all. */
function shuffledPairs(pairs) {
  let state = 12345;
  for (let last = pairs.length / 2 - 1; last > 0; last--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((state / 2 ** 32) * (last + 1));
    for (const side of [0, 1]) {
      const kept = pairs[2 * last + side];
      pairs[2 * last + side] = pairs[2 * other + side];
      pairs[2 * other + side] = kept;
    }
  }
  return pairs;
}
