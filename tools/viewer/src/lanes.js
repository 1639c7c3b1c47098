// lanes.js: drawing the lanes of the address map on a canvas.
//
// Owns: pixels of one frame: axis, backing lane, block lane, layer lane, breaks. Does not own: the viewport and gestures
// (map.js). Nothing small is left out: what is narrower than two pixels is summed up per column of pixels, and a column
// that holds anything shows at least one pixel of it.
import {bytesText, countText, lastAtOrBefore} from './util.js';
import {STATE} from './state.js';
import {hatch, theme} from './theme.js';

export const GUTTER = 112;
export const RIGHT = 14;

// Where the lanes lie; setHeight spreads them over what room there is.
export let LAYOUT = layout(268);

export function setHeight(height) {
  LAYOUT = layout(height);
}

function layout(height) {
  const back = 40 + Math.round((height - 126) * 0.22);
  const layers = height - 44;
  return {axis: [0, 32], back: [40, back], blocks: [back + 12, layers - 12], layers: [layers, layers + 32], height};
}

// frame: {context, width, axis, v0, v1, state, painter, hover, selected}; v0 and v1 are the ends of what is seen, on the
// axis' line.
export function drawLanes(frame) {
  const f = {...frame, scale: (frame.width - GUTTER - RIGHT) / (frame.v1 - frame.v0), t: theme()};
  drawGutter(f);
  f.context.save();
  f.context.beginPath();
  f.context.rect(GUTTER, 0, f.width - GUTTER - RIGHT, LAYOUT.height);
  f.context.clip();
  for (const piece of visiblePieces(f)) {
    if (piece.gap) drawBreak(f, piece);
    else drawPiece(f, piece);
  }
  drawRanges(f);
  f.context.restore();
}

const x = (f, line) => GUTTER + (line - f.v0) * f.scale;

function* visiblePieces(f) {
  const {pieces, starts} = f.axis;
  for (let i = Math.max(0, lastAtOrBefore(starts, starts.length, f.v0)); i < pieces.length && pieces[i].start < f.v1; i++) {
    yield pieces[i];
  }
}

function drawGutter(f) {
  const {context: c, t} = f;
  c.textBaseline = 'middle';
  c.textAlign = 'right';
  const names = [['back', 'backing', 'what is mapped'], ['blocks', 'blocks', 'what is live'], ['layers', 'layers', 'who holds it']];
  for (const [lane, name, what] of names) {
    const [top, bottom] = LAYOUT[lane];
    const middle = (top + bottom) / 2;
    c.fillStyle = t.ink;
    c.font = `600 12px ${t.font}`;
    c.fillText(name, GUTTER - 12, middle - (bottom - top > 30 ? 8 : 0));
    c.fillStyle = t.muted;
    c.font = `11px ${t.font}`;
    if (bottom - top > 30) c.fillText(what, GUTTER - 12, middle + 8);
  }
  c.textAlign = 'left';
}

// ---- a kept piece ----

function drawPiece(f, piece) {
  const left = Math.max(x(f, piece.start), GUTTER);
  const right = Math.min(x(f, piece.start + piece.length), f.width - RIGHT);
  const from = Math.max(piece.from, piece.from + (f.v0 - piece.start));
  const to = Math.min(piece.to, piece.from + (f.v1 - piece.start));
  const view = {left, right, from, to, x: (place) => x(f, piece.start + (place - piece.from))};
  const {context: c, t} = f;
  for (const lane of ['back', 'blocks', 'layers']) {
    const [top, bottom] = LAYOUT[lane];
    c.fillStyle = t.lane;
    c.fillRect(left, top, right - left, bottom - top);
  }
  drawTicks(f, view);
  drawMappings(f, view);
  drawBlocks(f, view);
  drawAreas(f, view);
}

const TICK_STEPS = Array.from({length: 60}, (_, i) => 2 ** i);

function drawTicks(f, view) {
  const {context: c, t} = f;
  const step = TICK_STEPS.find((one) => one * f.scale >= 128) ?? 2 ** 60;
  if (view.right - view.left < 150) {
    labelStart(f, view);
    return;
  }
  const range = f.state.space.rangeOf(view.from);
  const start = range ? range.start : 0;
  c.font = `11px ${t.mono}`;
  c.textBaseline = 'alphabetic';
  for (let place = start + Math.ceil((view.from - start) / step) * step; place <= view.to; place += step) {
    const at = Math.round(view.x(place)) + 0.5;
    c.fillStyle = t.line;
    c.fillRect(at - 0.5, 22, 1, LAYOUT.layers[1] - 22);
    const text = tickText(f, place, step);
    if (at + c.measureText(text).width + 6 > view.right) continue;
    c.fillStyle = t.muted;
    c.fillText(text, at + 4, 18);
    f.labelled = at + c.measureText(text).width + 26;
  }
}

// labelStart: a piece too short for marks says where it begins, where there is room for that.
function labelStart(f, view) {
  const {context: c, t} = f;
  if (view.left < (f.labelled ?? 0)) return;
  const text = `+${bytesText(view.from - f.state.space.rangeOf(view.from).start)}`;
  c.font = `11px ${t.mono}`;
  c.textBaseline = 'alphabetic';
  c.fillStyle = t.muted;
  c.fillText(text, view.left + 2, 18);
  c.fillRect(view.left, 22, 1, LAYOUT.back[0] - 24);
  f.labelled = view.left + c.measureText(text).width + 26;
}

// Offsets while they are short, addresses once the steps are small.
function tickText(f, place, step) {
  const {space} = f.state;
  if (step < 65536) return space.addressText(place);
  const offset = place - space.rangeOf(place).start;
  return `+${longOffset(offset, step)}`;
}

// longOffset counts in the largest unit of which a step is an eighth or more, so that marks are told apart.
function longOffset(offset, step) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (unit < 5 && 1024 ** (unit + 1) <= step * 8 && offset >= 1024 ** (unit + 1)) unit++;
  const value = offset / 1024 ** unit;
  const part = value - Math.floor(value);
  return `${countText(Math.floor(value))}${part > 0 ? part.toFixed(3).slice(1).replace(/0+$/, '') : ''} ${units[unit]}`;
}

// ---- lanes ----

// firstIn: the first item of a rising list that may reach into the view.
const firstIn = (items, place) => Math.max(0, lastAtOrBefore(items.off, items.n, place));

function drawMappings(f, view) {
  const {mappings} = f.state;
  const {context: c, t} = f;
  const [top, bottom] = LAYOUT.back;
  const columns = new Columns(view, t.state.length);
  let run = null; // of narrow neighbours in one state
  for (let i = firstIn(mappings, view.from); i < mappings.n && mappings.off[i] < view.to; i++) {
    const left = Math.max(view.x(mappings.off[i]), view.left);
    const right = Math.min(view.x(mappings.off[i] + mappings.len[i]), view.right);
    if (right <= view.left) continue;
    const state = mappings.state[i];
    if (run && (run.state !== state || left > run.right + 0.5)) {
      drawRun(c, t, run, top, bottom);
      run = null;
    }
    if (right - left < 2) {
      if (state === STATE.mapped) columns.add(left, right, state);
      else if (run) run.right = right;
      else run = {state, left, right};
      continue;
    }
    c.fillStyle = state === STATE.mapped ? t.state[state] : hatch(c, t.state[state], t.panel);
    const inset = right - left > 6 ? 1 : right - left > 3 ? 0.5 : 0;
    c.fillRect(left, top, right - left - inset, bottom - top);
    if (state === STATE.mapped && mappings.liveBytes[i] < mappings.len[i]) {
      // the part of the chunk that is live, as a level
      const level = (bottom - top) * (1 - mappings.liveBytes[i] / mappings.len[i]);
      c.fillStyle = t.gaps;
      c.fillRect(left, top, right - left - inset, Math.min(level, bottom - top - 2));
    }
    if (state !== STATE.mapped && right - left > 3) {
      c.strokeStyle = t.state[state];
      c.lineWidth = 1;
      c.strokeRect(left + 0.5, top + 0.5, right - left - inset - 1, bottom - top - 1);
    }
    if (right - left > 84) label(c, t, `chunk ${mappings.chunk[i]} · ${bytesText(mappings.len[i])}`, left, right, top, bottom, state === STATE.mapped);
  }
  if (run) drawRun(c, t, run, top, bottom);
  columns.draw(c, t.state, top, bottom, true);
}

function drawRun(c, t, {state, left, right}, top, bottom) {
  c.fillStyle = right - left < 3 ? t.state[state] : hatch(c, t.state[state], t.panel);
  c.fillRect(left, top, Math.max(1, right - left), bottom - top);
}

function drawBlocks(f, view) {
  const {blocks} = f.state;
  const {context: c, t, painter} = f;
  const [top, bottom] = LAYOUT.blocks;
  const colors = painter.entries.map((entry) => entry.color);
  const columns = new Columns(view, colors.length);
  for (let i = firstIn(blocks, view.from); i < blocks.n && blocks.off[i] < view.to; i++) {
    const left = Math.max(view.x(blocks.off[i]), view.left);
    const right = Math.min(view.x(blocks.off[i] + blocks.len[i]), view.right);
    if (right <= view.left) continue;
    const kind = painter.of(blocks, i);
    if (right - left < 2) {
      columns.add(left, right, kind);
      continue;
    }
    const inset = right - left > 6 ? 1 : right - left > 3 ? 0.5 : 0;
    c.fillStyle = colors[kind];
    c.fillRect(left, top, right - left - inset, bottom - top);
    drawSlack(f, view, i, right - inset, top, bottom);
    const tag = right - left > 56 ? f.state.labelOf(i) : '';
    if (right - left > 56) label(c, t, tag ? `${tag} · ${bytesText(blocks.len[i])}` : bytesText(blocks.len[i]), left, right, top, bottom, true);
  }
  columns.draw(c, colors, top, bottom, false);
  drawMark(f, view, f.hover, t.ink, 1.5);
  drawMark(f, view, f.selected, t.focus, 2.5);
}

// What rounding added, at the block's end.
function drawSlack(f, view, i, right, top, bottom) {
  const {blocks} = f.state;
  const slack = blocks.len[i] - blocks.req[i];
  if (slack <= 0 || slack * f.scale < 1.5) return;
  const left = Math.max(view.left, view.x(blocks.off[i] + blocks.req[i]));
  f.context.fillStyle = hatch(f.context, f.t.panel, 'rgba(0,0,0,0.25)');
  f.context.fillRect(left, top, right - left, bottom - top);
}

function drawMark(f, view, span, color, width) {
  if (!span || span.off + span.len <= view.from || span.off >= view.to) return;
  const left = Math.max(view.x(span.off), view.left) - 1;
  const right = Math.min(view.x(span.off + span.len), view.right) + 1;
  const [top, bottom] = span.lane === 'back' ? LAYOUT.back : span.lane === 'layers' ? LAYOUT.layers : LAYOUT.blocks;
  f.context.strokeStyle = color;
  f.context.lineWidth = width;
  f.context.strokeRect(left, top - 1.5, Math.max(2, right - left), bottom - top + 3);
}

// Areas lie inside one another (piece > arena > span): outlines, the outer ones higher.
function drawAreas(f, view) {
  const {context: c, t} = f;
  const [top, bottom] = LAYOUT.layers;
  for (const area of f.state.areas) {
    if (area.off >= view.to) break;
    if (area.off + area.len <= view.from) continue;
    const left = Math.max(view.x(area.off), view.left);
    const right = Math.min(view.x(area.off + area.len), view.right);
    const color = area.what === 'region' ? t.region : t[area.layer] ?? t.muted;
    const row = area.layer === 'buddy' ? 0 : area.what === 'span' || area.layer === 'slab' ? 2 : 1;
    const y = top + 2 + row * 10;
    const width = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
    if (area.what === 'free') {
      c.fillStyle = color;
      c.globalAlpha = 0.28;
      c.fillRect(left, y, width, 8);
      c.globalAlpha = 1;
      if (width > 4) {
        c.strokeStyle = color;
        c.lineWidth = 1;
        c.strokeRect(left + 0.5, y + 0.5, width - 1, 7);
      }
    } else {
      c.fillStyle = color;
      c.fillRect(left, y, width, 8);
    }
  }
  if (f.state.areas.length === 0 && view.right - view.left > 260) {
    c.fillStyle = t.muted;
    c.font = `11px ${t.font}`;
    c.textBaseline = 'middle';
    c.fillText('free lists are known at the snapshot only', view.left + 8, (top + bottom) / 2);
  }
}

function label(c, t, text, left, right, top, bottom, onColor) {
  c.font = `11px ${t.font}`;
  c.textBaseline = 'middle';
  const width = c.measureText(text).width;
  if (width + 10 > right - left) return;
  c.fillStyle = onColor ? 'rgba(0,0,0,0.55)' : t.panel;
  if (!onColor) c.globalAlpha = 0.85;
  c.beginPath();
  c.roundRect(left + 4, (top + bottom) / 2 - 9, width + 8, 18, 4);
  c.fill();
  c.globalAlpha = 1;
  c.fillStyle = onColor ? '#fff' : t.ink;
  c.fillText(text, left + 8, (top + bottom) / 2 + 0.5);
}

// Columns: shares of what is narrower than two pixels, per column of pixels and kind.
class Columns {
  constructor(view, kinds) {
    this.left = Math.floor(view.left);
    this.width = Math.max(1, Math.ceil(view.right) - this.left);
    this.kinds = kinds;
    this.share = null;
  }

  add(left, right, kind) {
    this.share ??= new Float32Array(this.width * this.kinds);
    let at = Math.max(left, this.left);
    const end = Math.min(right, this.left + this.width);
    const first = Math.min(this.width - 1, Math.floor(at - this.left));
    if (end - at < 1e-6) this.share[first * this.kinds + kind] += 1e-6;
    while (at < end) {
      const column = Math.floor(at - this.left);
      const next = Math.min(end, this.left + column + 1);
      if (column < this.width) this.share[column * this.kinds + kind] += next - at;
      if (next <= at) break;
      at = next;
    }
  }

  draw(c, colors, top, bottom, whole) {
    if (!this.share) return;
    const height = bottom - top;
    for (let column = 0; column < this.width; column++) {
      let y = bottom;
      for (let kind = 0; kind < this.kinds; kind++) {
        const share = this.share[column * this.kinds + kind];
        if (share === 0) continue;
        const part = whole ? height * Math.min(1, share) : Math.max(1, height * Math.min(1, share));
        c.fillStyle = colors[kind];
        c.fillRect(this.left + column, y - Math.max(1, part), 1, Math.max(1, part));
        y -= part;
      }
    }
  }
}

// ---- breaks and ranges ----

function drawBreak(f, piece) {
  const {context: c, t} = f;
  const left = Math.max(x(f, piece.start), GUTTER);
  const right = Math.min(x(f, piece.start + piece.length), f.width - RIGHT);
  if (right - left < 0.5) return;
  const top = LAYOUT.back[0];
  const bottom = LAYOUT.layers[1];
  c.fillStyle = hatch(c, t.faint, t.page);
  c.fillRect(left, top, right - left, bottom - top);
  if (right - left < 9) return;
  for (const edge of [x(f, piece.start), x(f, piece.start + piece.length)]) zigzag(f, edge, top, bottom);
  const text = `${bytesText(piece.to - piece.from)} not mapped`;
  c.font = `11px ${t.font}`;
  const width = c.measureText(text).width;
  c.save();
  c.translate((left + right) / 2, (LAYOUT.blocks[0] + LAYOUT.blocks[1]) / 2);
  const upright = width + 16 < right - left;
  if (!upright) c.rotate(-Math.PI / 2);
  if (upright || right - left > 15) {
    c.fillStyle = t.page;
    c.beginPath();
    c.roundRect(-width / 2 - 6, -9, width + 12, 18, 4);
    c.fill();
    c.fillStyle = t.muted;
    c.textAlign = 'center';
    c.textBaseline = 'middle';
    c.fillText(text, 0, 0.5);
  }
  c.restore();
}

function zigzag(f, at, top, bottom) {
  if (at < GUTTER - 1 || at > f.width - RIGHT + 1) return;
  const {context: c, t} = f;
  c.strokeStyle = t.muted;
  c.lineWidth = 1;
  c.beginPath();
  for (let y = top, side = -2; y <= bottom; y += 4, side = -side) c.lineTo(at + side, y);
  c.stroke();
}

function drawRanges(f) {
  const {context: c, t} = f;
  const {ranges} = f.state.space;
  if (ranges.length < 2) return;
  c.strokeStyle = t.ink;
  c.lineWidth = 1.5;
  for (const range of ranges) {
    const at = Math.round(x(f, f.axis.toLine(range.start))) + 0.5;
    c.beginPath();
    c.moveTo(at, 24);
    c.lineTo(at, LAYOUT.layers[1] + 4);
    c.stroke();
  }
}

// laneAt: which lane a height belongs to, or null.
export function laneAt(y) {
  for (const lane of ['back', 'blocks', 'layers']) if (y >= LAYOUT[lane][0] && y < LAYOUT[lane][1]) return lane;
  return null;
}
