// The hyperbolic plane of curvature -1, in float64 and in half distances.
//
// A point of the Lorentz model [t, x, y] is kept as the pair (u, v) with u = sqrt((t + 1) / 2) and v = (x + iy) / (2u):
// |u|^2 - |v|^2 = 1, its place in the Poincare disk is v / u, and sinh(d / 2) = |u1 v2 - v1 u2|. Its size is the root
// of the Lorentz coordinates', and so is the loss of digits far out: at distance 15 an isometry moves a point to within
// 1e-9, where a 3 x 3 matrix is wrong by 1e-3.
//
// An isometry (a, b), |a|^2 - |b|^2 = 1, maps v to a v + b u and u to conj(b) v + conj(a) u. Both are arrays of four
// numbers: [Re u, Im u, Re v, Im v] and [Re a, Im a, Re b, Im b].

const IDENTITY = [1, 0, 0, 0];

/** The isometry that does `second` first and `first` then. */
function compose([ar, ai, br, bi], [cr, ci, dr, di]) {
  return [
    ar * cr - ai * ci + br * dr + bi * di,
    ar * ci + ai * cr + bi * dr - br * di,
    ar * dr - ai * di + br * cr + bi * ci,
    ar * di + ai * dr + bi * cr - br * ci,
  ];
}

const inverse = ([ar, ai, br, bi]) => [ar, -ai, -br, -bi];

/** Put an isometry back on |a|^2 - |b|^2 = 1. The size of a follows from b, for their difference would cancel. */
function normalized([ar, ai, br, bi]) {
  const scale = Math.sqrt(1 + br * br + bi * bi) / Math.hypot(ar, ai);
  return [ar * scale, ai * scale, br, bi];
}

function moved([ar, ai, br, bi], [ur, ui, vr, vi]) {
  return [
    br * vr + bi * vi + ar * ur + ai * ui,
    br * vi - bi * vr + ar * ui - ai * ur,
    ar * vr - ai * vi + br * ur - bi * ui,
    ar * vi + ai * vr + br * ui + bi * ur,
  ];
}

function fromDisk(x, y) {
  const u = 1 / Math.sqrt(1 - x * x - y * y);
  return [u, 0, x * u, y * u];
}

/** The point over space coordinates of the Lorentz model. */
function fromSpace(x, y) {
  const u = Math.sqrt((Math.sqrt(1 + x * x + y * y) + 1) / 2);
  return [u, 0, x / (2 * u), y / (2 * u)];
}

function toLorentz([ur, ui, vr, vi]) {
  return [ur * ur + ui * ui + vr * vr + vi * vi, 2 * (vr * ur + vi * ui), 2 * (vi * ur - vr * ui)];
}

function toDisk([ur, ui, vr, vi]) {
  const size = ur * ur + ui * ui;
  return [(vr * ur + vi * ui) / size, (vi * ur - vr * ui) / size];
}

function distance([pr, pi, qr, qi], [ur, ui, vr, vi]) {
  return 2 * Math.asinh(Math.hypot(pr * vr - pi * vi - qr * ur + qi * ui, pr * vi + pi * vr - qr * ui - qi * ur));
}

const fromOrigin = ([, , vr, vi]) => 2 * Math.asinh(Math.hypot(vr, vi));

/** The translation from the origin to a point, along their geodesic. */
function boost([ur, ui, vr, vi]) {
  const size = Math.hypot(ur, ui);
  return [size, 0, (vr * ur + vi * ui) / size, (vi * ur - vr * ui) / size];
}

/**
 * The translation along a geodesic through the centre of the disk that carries one point to another.
 *
 * Of all isometries that do so it is the one that does not turn the plane at the centre. The translation along the
 * geodesic of the two points themselves would fling everything else away when they lie far out. With p and q the places
 * on the disk, P + p = (1 + conj(P) p) q has the solution P = (q - p + p q conj(q - p)) / (1 - |p q|^2).
 */
function translation(from, to) {
  const [px, py] = toDisk(from);
  const [qx, qy] = toDisk(to);
  // 1 - |z|^2 = 1 / |u|^2, which does not cancel near the boundary.
  const pRoom = 1 / (from[0] ** 2 + from[1] ** 2);
  const qRoom = 1 / (to[0] ** 2 + to[1] ** 2);
  const room = pRoom + qRoom - pRoom * qRoom;
  const [dx, dy] = [qx - px, qy - py];
  const [cx, cy] = [px * qx - py * qy, px * qy + py * qx];
  return boost(fromDisk((dx + cx * dx + cy * dy) / room, (dy + cy * dx - cx * dy) / room));
}

/** The part of a way: the translation by `length` in the direction of a point, as seen from the origin. */
function boostTowards([ur, ui, vr, vi], length) {
  const x = vr * ur + vi * ui;
  const y = vi * ur - vr * ui;
  const size = Math.hypot(x, y);
  if (size === 0) return IDENTITY;
  const reach = Math.sinh(length / 2) / size;
  return [Math.cosh(length / 2), 0, x * reach, y * reach];
}

/** The circle that the geodesic of two points of the disk lies on, or null where it is a line for the eye. */
function geodesicCircle(ax, ay, bx, by) {
  const det = ax * by - ay * bx;
  const a = 1 + ax * ax + ay * ay;
  const b = 1 + bx * bx + by * by;
  const nx = by * a - ay * b;
  const ny = ax * b - bx * a;
  const square = nx * nx + ny * ny - 4 * det * det;
  if (square <= 0 || Math.abs(det) < 1e-9 * Math.sqrt(square)) return null;
  return { x: nx / (2 * det), y: ny / (2 * det), radius: Math.sqrt(square) / (2 * Math.abs(det)) };
}
