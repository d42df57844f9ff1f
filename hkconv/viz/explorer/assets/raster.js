// Pixels by hand: a hundred thousand arcs and twenty thousand dots a frame, without a graphics card.
//
// Edges do not cover one another: each adds to the density of the pixels it crosses, and at the end density becomes
// opacity, 1 - exp(-density). So a crowd of edges glows instead of turning into a blot, and their order does not matter.
// The inner loops make no array and call no Math.hypot, which is many times slower than a root.

const OPACITY_STEPS = 2048;
const DENSITY_RANGE = 6;
// How far a drawn arc may be from the true one, in pixels.
const FLATNESS = 0.15;
const MOST_SEGMENTS = 40;

class Raster {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.density = new Float32Array(width * height);
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.opacity = new Uint8Array(OPACITY_STEPS + 1);
  }

  clear() {
    this.density.fill(0);
  }

  /** Add a straight line, one pixel wide, its ends anywhere. */
  line(x0, y0, x1, y1, weight) {
    const right = this.width - 2;
    const bottom = this.height - 2;
    if (!(x0 >= 1 && x0 <= right && y0 >= 1 && y0 <= bottom && x1 >= 1 && x1 <= right && y1 >= 1 && y1 <= bottom)) {
      const inside = clipLine(x0, y0, x1, y1, 1, 1, right, bottom);
      if (inside === null) return;
      [x0, y0, x1, y1] = inside;
    }
    if (Math.abs(x1 - x0) >= Math.abs(y1 - y0)) this.walk(x0, y0, x1, y1, weight, 1, this.width);
    else this.walk(y0, x0, y1, x1, weight, this.width, 1);
  }

  /**
   * Add a line pixel by pixel along its longer side. Each pixel gets as much as there is of the line, shared with the
   * one beside it by where the line passes, so that lines of all directions are equally dark and joints do not show.
   */
  walk(from, fromSide, to, toSide, weight, alongStep, sideStep) {
    const start = Math.min(from, to);
    const end = Math.max(from, to);
    const slope = end > start ? (toSide - fromSide) / (to - from) : 0;
    const share = weight * Math.sqrt(1 + slope * slope);
    const density = this.density;
    for (let along = Math.floor(start); along < end; along++) {
      const left = Math.max(start, along);
      const right = Math.min(end, along + 1);
      const side = fromSide + slope * ((left + right) / 2 - from) - 0.5;
      const low = Math.floor(side);
      const part = (right - left) * share;
      const beside = (side - low) * part;
      const place = along * alongStep + low * sideStep;
      density[place] += part - beside;
      density[place + sideStep] += beside;
    }
  }

  /** Add the geodesic between two points of the disk of that centre and scale, in pixels. */
  geodesic(ax, ay, bx, by, centerX, centerY, scale, weight) {
    const px = centerX + ax * scale;
    const py = centerY - ay * scale;
    const qx = centerX + bx * scale;
    const qy = centerY - by * scale;
    const square = (bx - ax) ** 2 + (by - ay) ** 2;
    if (square * scale * scale > 9) {
      const det = ax * by - ay * bx;
      const a = 1 + ax * ax + ay * ay;
      const b = 1 + bx * bx + by * by;
      const nx = by * a - ay * b;
      const ny = ax * b - bx * a;
      const reach = nx * nx + ny * ny - 4 * det * det;
      const bend = reach > 0 ? (square * scale * Math.abs(det)) / (4 * Math.sqrt(reach)) : 0;
      if (bend > FLATNESS) {
        this.arc(ax, ay, bx, by, nx / (2 * det), ny / (2 * det), bend, centerX, centerY, scale, weight);
        return;
      }
    }
    this.line(px, py, qx, qy, weight);
  }

  /** Add the arc from one point to another around a centre, all in the disk. */
  arc(ax, ay, bx, by, cx, cy, bend, centerX, centerY, scale, weight) {
    const segments = Math.min(Math.ceil(Math.sqrt(bend / FLATNESS)) + 1, MOST_SEGMENTS);
    let x = ax - cx;
    let y = ay - cy;
    const ex = bx - cx;
    const ey = by - cy;
    const turn = Math.atan2(x * ey - y * ex, x * ex + y * ey) / segments;
    const cos = Math.cos(turn);
    const sin = Math.sin(turn);
    let fromX = centerX + ax * scale;
    let fromY = centerY - ay * scale;
    for (let segment = 0; segment < segments; segment++) {
      const turnedX = x * cos - y * sin;
      y = x * sin + y * cos;
      x = turnedX;
      const toX = centerX + (cx + x) * scale;
      const toY = centerY - (cy + y) * scale;
      this.line(fromX, fromY, toX, toY, weight);
      fromX = toX;
      fromY = toY;
    }
  }

  /** Turn the density, times a factor, into pixels of one colour. */
  developEdges([red, green, blue], strength, brightness) {
    for (let step = 0; step <= OPACITY_STEPS; step++) {
      this.opacity[step] = Math.round(255 * strength * (1 - Math.exp((-step * DENSITY_RANGE) / OPACITY_STEPS)));
    }
    const colour = (blue << 16) | (green << 8) | red;
    const { density, pixels, opacity } = this;
    const factor = (brightness * OPACITY_STEPS) / DENSITY_RANGE;
    for (let index = 0; index < pixels.length; index++) {
      const found = density[index];
      pixels[index] = found === 0 ? 0 : (opacity[Math.min(found * factor, OPACITY_STEPS) | 0] << 24) | colour;
    }
  }

  /** Draw a dot over what is there: a disc of one colour with a rim of another. */
  dot(x, y, radius, colour, rim, rimWidth) {
    const reach = radius + rimWidth + 0.5;
    const left = Math.max(Math.floor(x - reach), 0);
    const right = Math.min(Math.ceil(x + reach), this.width - 1);
    const top = Math.max(Math.floor(y - reach), 0);
    const bottom = Math.min(Math.ceil(y + reach), this.height - 1);
    const full = (255 << 24) | (colour[2] << 16) | (colour[1] << 8) | colour[0];
    for (let row = top; row <= bottom; row++) {
      const dy = row + 0.5 - y;
      for (let column = left; column <= right; column++) {
        const dx = column + 0.5 - x;
        const away = Math.sqrt(dx * dx + dy * dy);
        if (away >= reach) continue;
        const index = row * this.width + column;
        if (away <= radius - 0.5) this.pixels[index] = full;
        else this.blend(index, colour, rim, Math.max(Math.min(radius + 0.5 - away, 1), 0), Math.min(reach - away, 1));
      }
    }
  }

  /** Lay `inner` of one colour and the rest of another over a pixel, with opacity `cover`. */
  blend(index, colour, rim, inner, cover) {
    const below = this.pixels[index];
    const belowShare = ((below >>> 24) / 255) * (1 - cover);
    const total = cover + belowShare;
    // Dots mostly lie on dots, where the division is by one.
    const own = below >>> 24 === 255 ? cover : cover / total;
    const red = below & 255;
    const green = (below >>> 8) & 255;
    const blue = (below >>> 16) & 255;
    this.pixels[index] =
      ((total * 255 + 0.5) << 24) |
      ((blue + own * (rim[2] + inner * (colour[2] - rim[2]) - blue)) << 16) |
      ((green + own * (rim[1] + inner * (colour[1] - rim[1]) - green)) << 8) |
      (red + own * (rim[0] + inner * (colour[0] - rim[0]) - red));
  }
}

/** The part of a line inside a rectangle (Liang and Barsky), or null. */
function clipLine(x0, y0, x1, y1, left, top, right, bottom) {
  const dx = x1 - x0;
  const dy = y1 - y0;
  let enter = 0;
  let leave = 1;
  for (const [direction, room] of [[-dx, x0 - left], [dx, right - x0], [-dy, y0 - top], [dy, bottom - y0]]) {
    if (direction === 0) {
      if (room < 0) return null;
    } else if (direction < 0) {
      enter = Math.max(enter, room / direction);
    } else {
      leave = Math.min(leave, room / direction);
    }
  }
  return enter < leave ? [x0 + enter * dx, y0 + enter * dy, x0 + leave * dx, y0 + leave * dy] : null;
}
