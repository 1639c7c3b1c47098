// chunks.js: physical memory: one cell per chunk, by size; a cell shows its state and how much of it is live.
import {STATE, STATES} from './state.js';
import {hatch, theme} from './theme.js';
import {mappingLines} from './describe.js';
import {bytesText, countText, exactBytes, fitCanvas, h, replace, shareText} from './util.js';

const GAP = 2;

export class ChunksView {
  constructor(app) {
    this.app = app;
    this.id = 'chunks';
    this.title = 'Chunks';
    this.order = 'address';
    this.element = h('section.view', {id: 'view-chunks'});
    const option = (value, text) => h('option', {value}, text);
    this.orderSelect = h('select', {id: 'chunk-order', onchange: () => {
      this.order = this.orderSelect.value;
      this.stateChanged();
    }}, option('address', 'address'), option('id', 'number'), option('live', 'live bytes'));
    this.legend = h('div.legend');
    this.groups = h('div');
    this.element.append(h('div.bar', h('label', 'order by ', this.orderSelect), h('span.grow'),
      this.summary = h('span.seen')), this.groups, this.legend);
  }

  show() {
    this.stateChanged();
  }

  resize() {
    this.stateChanged();
  }

  stateChanged() {
    const {state} = this.app;
    const {mappings, spares} = state;
    const groups = new Map();
    const group = (bytes) => {
      if (!groups.has(bytes)) groups.set(bytes, {bytes, mapped: [], spares: []});
      return groups.get(bytes);
    };
    for (let i = 0; i < mappings.n; i++) group(mappings.len[i]).mapped.push(i);
    for (const spare of spares) group(spare.bytes).spares.push(spare);
    const chunks = new Set();
    for (let i = 0; i < mappings.n; i++) chunks.add(mappings.chunk[i]);
    replace(this.summary, `${countText(chunks.size + spares.length)} chunks, ${bytesText(state.totals.mapped + (state.totals.spare ?? 0))}`);
    if (groups.size === 0) {
      replace(this.groups, h('div.card.empty', h('b', 'No chunk'), h('p', 'The pool holds no physical memory at this moment.')));
    } else {
      replace(this.groups, [...groups.values()].sort((a, b) => b.bytes - a.bytes).map((one) => this.group(one)));
    }
    this.drawLegend();
    for (const canvas of this.groups.querySelectorAll('canvas')) canvas.paint();
  }

  sort(list) {
    const {mappings} = this.app.state;
    const by = {address: (i) => mappings.off[i], id: (i) => mappings.chunk[i], live: (i) => -mappings.liveBytes[i]}[this.order];
    return list.sort((a, b) => by(a) - by(b));
  }

  group({bytes, mapped, spares}) {
    const {app} = this;
    const {mappings} = app.state;
    this.sort(mapped);
    const states = STATES.map((name, state) => [name.replace('_', ' '), mapped.filter((i) => mappings.state[i] === state).length]);
    if (spares.length) states.push(['spare', spares.length]);
    let live = 0;
    for (const i of mapped) live += mappings.liveBytes[i];
    const chunks = new Set(mapped.map((i) => mappings.chunk[i])).size + spares.length;  // retiring addresses and new ones: one chunk
    const canvas = h('canvas.cells', {tabindex: -1, 'aria-hidden': 'true'});
    const cells = [...mapped.map((index) => ({index})), ...spares.map((spare) => ({spare}))];
    const layout = () => {
      const width = Math.max(200, Math.floor(this.element.clientWidth) - 34);
      const side = cells.length > 6000 ? 6 : cells.length > 1500 ? 9 : cells.length > 300 ? 14 : 20;
      return {width, side, perRow: Math.max(1, Math.floor((width + GAP) / (side + GAP)))};
    };
    canvas.paint = () => this.paint(canvas, cells, layout());
    const cellAt = (event) => {
      const {side, perRow} = layout();
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / (side + GAP));
      const row = Math.floor((event.clientY - box.top) / (side + GAP));
      return column < perRow ? cells[row * perRow + column] : undefined;
    };
    canvas.addEventListener('pointermove', (event) => {
      const cell = cellAt(event);
      if (!cell) return app.tooltip.hide();
      return app.tooltip.show(event, cell.spare ? [['title', `chunk ${cell.spare.chunk}`], ['size', exactBytes(cell.spare.bytes)],
        ['state', 'spare: mapped nowhere']] : mappingLines(app, cell.index));
    });
    canvas.addEventListener('pointerleave', () => app.tooltip.hide());
    canvas.addEventListener('click', (event) => {
      const cell = cellAt(event);
      if (!cell || cell.spare) return;
      app.select({lane: 'back', off: mappings.off[cell.index], len: mappings.len[cell.index]});
    });
    return h('div.card', {'data-bytes': bytes, 'data-chunks': chunks}, h('div.head', h('h2', `${bytesText(bytes)} each`),
      h('span.quiet', `${countText(chunks)} ${chunks === 1 ? 'chunk' : 'chunks'}, ${bytesText(bytes * chunks)}; ${shareText(live, bytes * chunks)} live`),
      h('span.grow'), h('span.quiet', states.filter(([, n]) => n > 0).map(([name, n]) => `${countText(n)} ${name}`).join(' · '))), canvas);
  }

  paint(canvas, cells, {width, side, perRow}) {
    const rows = Math.ceil(cells.length / perRow);
    const c = fitCanvas(canvas, width, rows * (side + GAP));
    const t = theme();
    const {mappings} = this.app.state;
    cells.forEach((cell, n) => {
      const x = (n % perRow) * (side + GAP);
      const y = Math.floor(n / perRow) * (side + GAP);
      if (cell.spare) {
        c.strokeStyle = t.spare;
        c.lineWidth = 1.5;
        c.strokeRect(x + 1, y + 1, side - 2, side - 2);
        return;
      }
      const state = mappings.state[cell.index];
      if (state === STATE.mapped) {
        const share = mappings.liveBytes[cell.index] / mappings.len[cell.index];
        c.fillStyle = t.gaps;
        c.fillRect(x, y, side, side);
        const height = share > 0 ? Math.max(1, Math.round(side * share)) : 0;
        c.fillStyle = t.live;
        c.fillRect(x, y + side - height, side, height);
      } else {
        c.fillStyle = hatch(c, t.state[state], t.panel);
        c.fillRect(x, y, side, side);
        c.strokeStyle = t.state[state];
        c.lineWidth = 1;
        c.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      }
    });
  }

  drawLegend() {
    const t = theme();
    const item = (color, text, hatched) => h('span', h('i', {class: hatched ? 'swatch hatched' : 'swatch', style: {'background-color': color}}), text);
    replace(this.legend, h('div', h('b', 'chunks'), item(t.live, 'live, from the bottom'), item(t.gaps, 'gaps'), item(t.parked, 'parked', true), item(t.pending, 'pending', true),
      item(t.retiring, 'retiring', true), item(t.broken, 'broken', true), h('span', h('i.swatch.outline'), 'spare')),
      h('div', 'Click a chunk to see it in the details, and from there on the map.'));
  }
}
