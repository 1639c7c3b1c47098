// map.js: the address map: viewport, gestures, keyboard, overview strip, tooltip, legend.
//
// Owns: what is seen ([v0, v1] on the axis' line) and how it changes. Does not own: the drawing of lanes (lanes.js), the
// axis (axis.js), what is selected (app.js).
import {select} from 'd3-selection';
import {zoom, zoomIdentity} from 'd3-zoom';
import {Axis} from './axis.js';
import {GUTTER, LAYOUT, RIGHT, drawLanes, laneAt, setHeight} from './lanes.js';
import {PAINTERS, painter} from './paint.js';
import {STATES} from './state.js';
import {hatch, theme} from './theme.js';
import {areaLines, blockLines, gapLines, mappingLines} from './describe.js';
import {bytesText, fitCanvas, h, replace} from './util.js';

const LEAST_SEEN = 64; // bytes over the whole width

export class MapView {
  constructor(app) {
    this.app = app;
    this.id = 'map';
    this.title = 'Address map';
    this.trueScale = false;
    this.paint = 'size';
    this.build();
  }

  build() {
    const option = ([value, text]) => h('option', {value}, text);
    this.paintSelect = h('select', {'aria-label': 'colour blocks by', id: 'map-paint',
      onchange: () => this.setPaint(this.paintSelect.value)}, Object.entries(PAINTERS).map(option));
    this.scaleButton = h('button', {type: 'button', id: 'map-scale', 'aria-pressed': 'false', title: 'key t',
      onclick: () => this.setTrueScale(!this.trueScale)}, 'true scale');
    this.seen = h('span.seen', {id: 'map-seen'});
    this.canvas = h('canvas', {tabindex: 0, id: 'map-canvas', role: 'img', 'aria-label':
      'address map: arrow keys move, plus and minus zoom, 0 shows all, comma and full stop go from block to block'});
    this.overview = h('canvas.overview', {id: 'map-overview', 'aria-hidden': 'true'});
    this.legend = h('div.legend');
    this.element = h('section.view', {id: 'view-map'},
      h('div.bar',
        h('div.group', button('−', 'zoom out (key −)', () => this.zoomBy(1 / 4)),
          button('+', 'zoom in (key +)', () => this.zoomBy(4)),
          button('all', 'show everything (key 0)', () => this.fit(), 'map-all')),
        this.scaleButton,
        h('label', 'colour by ', this.paintSelect),
        h('span.grow'), this.seen),
      h('div.card.map', this.overview, this.canvas),
      this.legend,
      h('p.hint', 'Wheel or pinch to zoom, drag to move, click to keep a block in view on the right. Keys: ',
        ['←', '→'].map((key) => h('kbd', key)), ' move ', h('kbd', '+'), h('kbd', '−'), ' zoom ', h('kbd', '0'), ' all ',
        h('kbd', ','), h('kbd', '.'), ' previous and next block ', h('kbd', 't'), ' true scale'));
    this.gestures();
  }

  gestures() {
    this.zoom = zoom().on('zoom', (event) => this.zoomed(event.transform));
    this.surface = select(this.canvas);
    this.surface.call(this.zoom);
    this.canvas.addEventListener('pointermove', (event) => this.hovered(event));
    this.canvas.addEventListener('pointerleave', () => this.unhover());
    this.canvas.addEventListener('click', (event) => this.clicked(event));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.overview.addEventListener('pointerdown', (event) => {
      this.overview.setPointerCapture(event.pointerId);
      this.overviewMoved(event);
    });
    this.overview.addEventListener('pointermove', (event) => event.buttons && this.overviewMoved(event));
  }

  // ---- what is seen ----

  show() {
    this.resize();
  }

  resize() {
    const width = Math.floor(this.element.querySelector('.map').clientWidth);
    if (width < 200) return;
    this.width = width;
    setHeight(Math.min(520, Math.max(268, this.app.main.clientHeight - 330)));
    this.inner = width - GUTTER - RIGHT;
    // In the canvas' own pixels, so that what lies under the pointer stays there.
    const extent = [[GUTTER, 0], [GUTTER + this.inner, LAYOUT.height]];
    this.zoom.extent(extent).translateExtent(extent);
    this.refresh();
  }

  // refresh: the state has changed. The places that are seen stay, where the axis is a new one.
  refresh() {
    if (!this.width) return;
    const old = this.axis;
    const seen = old && this.v1 !== undefined && !this.all() ? [old.toPlace(this.v0), old.toPlace(this.v1)] : null;
    this.axis = new Axis(this.spans(), this.app.state.space.bytes, {trueScale: this.trueScale, granule: this.granule()});
    this.zoom.scaleExtent([1, Math.max(1, this.axis.length / LEAST_SEEN)]);
    this.painter = painter(this.paint, this.app.state);
    this.drawLegend();
    if (seen) this.seePlaces(seen[0], seen[1]);
    else this.seeLine(0, this.axis.length);
  }

  // stateChanged: the same axis while scrubbing, unless something lies in a break.
  stateChanged() {
    this.refresh();
  }

  granule() {
    return this.app.granule;
  }

  // spans: what must be seen: mappings, and blocks wherever they are. With a log, of its whole time, so that the axis
  // stands still while time moves.
  spans() {
    const spans = [];
    const push = ({off, len, n}) => {
      for (let i = 0; i < n; i++) spans.push([off[i], off[i] + len[i]]);
    };
    push(this.app.state.mappings);
    push(this.app.state.blocks);
    const {history} = this.app.page;
    if (history) push(history.mappings);
    return spans.sort((a, b) => a[0] - b[0]);
  }

  all() {
    return this.axis && this.v0 <= 0 && this.v1 >= this.axis.length;
  }

  seeLine(v0, v1) {
    const length = Math.max(v1 - v0, LEAST_SEEN);
    const k = this.axis.length / length;
    this.surface.call(this.zoom.transform, zoomIdentity.translate(GUTTER * (1 - k) - (v0 / length) * this.inner, 0).scale(k));
  }

  seePlaces(from, to) {
    this.seeLine(this.axis.toLine(from), this.axis.toLine(to));
  }

  // seeSpan shows a span in the middle, with as much around it.
  seeSpan(off, len) {
    const around = Math.max(len, 256);
    this.seeLine(Math.max(0, this.axis.toLine(off) - around), Math.min(this.axis.length, this.axis.toLine(off + len) + around));
  }

  fit() {
    this.seeLine(0, this.axis.length);
  }

  zoomBy(factor) {
    this.surface.call(this.zoom.scaleBy, factor);
  }

  moveBy(share) {
    this.seeLineClamped(this.v0 + share * (this.v1 - this.v0));
  }

  seeLineClamped(v0) {
    const length = this.v1 - this.v0;
    const at = Math.min(Math.max(0, v0), this.axis.length - length);
    this.seeLine(at, at + length);
  }

  zoomed(transform) {
    const length = this.axis.length / transform.k;
    this.v0 = Math.max(0, ((transform.invertX(GUTTER) - GUTTER) / this.inner) * this.axis.length);
    this.v1 = this.v0 + length;
    this.draw();
  }

  setTrueScale(on) {
    this.trueScale = on;
    this.scaleButton.setAttribute('aria-pressed', String(on));
    this.refresh();
  }

  setPaint(name) {
    this.paint = name;
    this.paintSelect.value = name;
    this.refresh();
  }

  // ---- drawing ----

  draw() {
    if (!this.width) return;
    const {app} = this;
    const context = fitCanvas(this.canvas, this.width, LAYOUT.height);
    drawLanes({context, width: this.width, axis: this.axis, v0: this.v0, v1: this.v1, state: app.state,
               painter: this.painter, hover: this.hover, selected: app.selection});
    this.drawOverview();
    const from = Math.round(this.axis.toPlace(this.v0));
    const to = Math.round(this.axis.toPlace(this.v1));
    this.canvas.dataset.from = String(from);
    this.canvas.dataset.to = String(to);
    replace(this.seen, this.all() ? `all of ${bytesText(this.axis.total)} reserved` : `${bytesText(to - from)} seen of ${bytesText(this.axis.total)} reserved`);
  }

  drawOverview() {
    const height = 22;
    const c = fitCanvas(this.overview, this.width, height);
    const t = theme();
    const x = (line) => GUTTER + (line / this.axis.length) * this.inner;
    for (const piece of this.axis.pieces) {
      c.fillStyle = piece.gap ? hatch(c, t.faint, t.page) : t.lane;
      c.fillRect(x(piece.start), 4, Math.max(0.5, x(piece.start + piece.length) - x(piece.start)), height - 8);
    }
    const {mappings} = this.app.state;
    for (let i = 0; i < mappings.n; i++) {
      c.fillStyle = t.state[mappings.state[i]];
      const left = x(this.axis.toLine(mappings.off[i]));
      c.fillRect(left, 4, Math.max(1, x(this.axis.toLine(mappings.off[i] + mappings.len[i])) - left), height - 8);
    }
    const left = x(this.v0);
    const right = Math.max(left + 3, x(this.v1));
    c.fillStyle = t.page;
    c.globalAlpha = 0.6;
    c.fillRect(GUTTER, 2, left - GUTTER, height - 4);
    c.fillRect(right, 2, GUTTER + this.inner - right, height - 4);
    c.globalAlpha = 1;
    c.strokeStyle = t.ink;
    c.lineWidth = 1.5;
    c.strokeRect(left + 0.5, 1.5, right - left - 1, height - 3);
    c.fillStyle = t.muted;
    c.font = `11px ${t.font}`;
    c.textAlign = 'right';
    c.textBaseline = 'middle';
    c.fillText('everything', GUTTER - 12, height / 2);
  }

  drawLegend() {
    const t = theme();
    const swatch = (color, hatched) => h('i.swatch', {style: {'background-color': color}, class: hatched ? 'swatch hatched' : 'swatch'});
    const backing = [['live bytes of a chunk', t.live, false], ['gaps in it', t.gaps, false],
                     ...[1, 5, 2, 3, 4].map((state) => [STATES[state].replace('_', ' '), t.state[state], true])];
    replace(this.legend,
      h('div', h('b', 'backing'), backing.map(([name, color, hatched]) => h('span', swatch(color, hatched), name)),
        h('span', swatch(t.lane), 'reserved, not mapped')),
      h('div', h('b', 'blocks'), this.painter.entries.map((e) => h('span', swatch(e.color), e.label)),
        h('span', h('i.swatch.slack'), 'added by rounding')),
      this.app.state.areas.length > 0 &&
        h('div', h('b', 'layers'), ['buddy', 'mid', 'slab', 'region'].map((name) => h('span', swatch(t[name]), name)),
          h('span', h('i.swatch.pale'), 'free')));
  }

  // ---- pointer and keys ----

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const px = event.clientX - box.left;
    if (px < GUTTER || px > this.width - RIGHT) return null;
    const line = this.v0 + ((px - GUTTER) / this.inner) * (this.v1 - this.v0);
    return {place: this.axis.toPlace(line), piece: this.axis.pieceAtLine(line), lane: laneAt(event.clientY - box.top),
            reach: (this.v1 - this.v0) / this.inner};
  }

  // find: what lies at the pointer. Narrower than a pixel, the nearest within one pixel and a half.
  find(at) {
    if (!at || !at.lane || at.piece.gap) return null;
    const {state} = this.app;
    if (at.lane === 'layers') return findArea(state, at.place);
    const items = at.lane === 'back' ? state.mappings : state.blocks;
    const index = at.lane === 'back' ? state.mappingAt(at.place) : state.blockAt(at.place);
    const near = index >= 0 ? index : nearest(items, at.place, at.reach * 1.5);
    return near < 0 ? null : {lane: at.lane, index: near, off: items.off[near], len: items.len[near]};
  }

  hovered(event) {
    const at = this.at(event);
    const found = this.find(at);
    const old = this.hover;
    this.hover = found;
    if ((old && old.off) !== (found && found.off) || (old && old.lane) !== (found && found.lane)) this.draw();
    if (!at) return this.app.tooltip.hide();
    return this.app.tooltip.show(event, this.lines(at, found));
  }

  lines(at, found) {
    const {app} = this;
    if (at.piece.gap) return gapLines(app.state, at.piece);
    if (!found) return gapLines(app.state, {place: at.place, lane: at.lane});
    if (found.area) return areaLines(app.state, found.area);
    return found.lane === 'back' ? mappingLines(app, found.index) : blockLines(app, found.index);
  }

  unhover() {
    this.hover = null;
    this.app.tooltip.hide();
    this.draw();
  }

  clicked(event) {
    const at = this.at(event);
    if (!at || at.piece.gap) return;
    const found = this.find(at);
    if (found && !found.area) this.app.select({lane: found.lane, off: found.off, len: found.len});
    else this.app.select({lane: 'place', off: Math.floor(at.place), len: 1});
  }

  overviewMoved(event) {
    const px = event.clientX - this.overview.getBoundingClientRect().left;
    const line = ((px - GUTTER) / this.inner) * this.axis.length;
    this.seeLineClamped(line - (this.v1 - this.v0) / 2);
  }

  key(event) {
    const keys = {
      ArrowLeft: () => this.moveBy(event.shiftKey ? -0.9 : -0.15), ArrowRight: () => this.moveBy(event.shiftKey ? 0.9 : 0.15),
      '+': () => this.zoomBy(2), '=': () => this.zoomBy(2), '-': () => this.zoomBy(0.5), '0': () => this.fit(),
      t: () => this.setTrueScale(!this.trueScale), ',': () => this.neighbour(-1), '.': () => this.neighbour(1),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  // neighbour selects the block before or after the selected one, or the first one in view.
  neighbour(direction) {
    const {state, selection} = this.app;
    const {blocks} = state;
    if (blocks.n === 0) return;
    const from = Math.round(this.axis.toPlace(this.v0));
    let index = selection && selection.lane === 'blocks' ? state.blockAt(selection.off) : -1;
    if (index >= 0) index = Math.min(Math.max(0, index + direction), blocks.n - 1);
    else index = Math.max(0, nearest(blocks, from, Infinity));
    this.app.select({lane: 'blocks', off: blocks.off[index], len: blocks.len[index]});
    const start = this.axis.toLine(blocks.off[index]);
    const end = this.axis.toLine(blocks.off[index] + blocks.len[index]);
    if (start < this.v0 || end > this.v1) this.seeLineClamped((start + end) / 2 - (this.v1 - this.v0) / 2);
  }
}

const button = (text, title, act, id) => h('button', {type: 'button', title, 'aria-label': title, onclick: act, id}, text);

// nearest: the item whose nearer end is within `reach` of the place, or -1. Items rise.
function nearest(items, place, reach) {
  let best = -1;
  let distance = reach;
  let low = 0;
  let high = items.n;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (items.off[middle] <= place) low = middle + 1;
    else high = middle;
  }
  for (const i of [low - 1, low]) {
    if (i < 0 || i >= items.n) continue;
    const d = items.off[i] > place ? items.off[i] - place : place - (items.off[i] + items.len[i]);
    if (d <= distance) {
      distance = d;
      best = i;
    }
  }
  return best;
}

// findArea: the innermost area at the place.
function findArea(state, place) {
  let best = null;
  for (const area of state.areas) {
    if (area.off > place) break;
    if (place < area.off + area.len && (!best || area.len <= best.len)) best = area;
  }
  return best && {lane: 'layers', off: best.off, len: best.len, area: best};
}
