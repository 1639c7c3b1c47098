// diff.js: two states beside one another: which figures changed, which blocks are only in one of them, on one axis.
//
// A side is a snapshot, a state that was kept while scrubbing, or a snapshot file that the person opens (it is read in
// the page; nothing is sent). Blocks are the same where address and size are.
import {Axis} from './axis.js';
import {parseSnapshot} from './load.js';
import {LAYERS, rangesOf, stateOfSnapshot} from './state.js';
import {hatch, theme} from './theme.js';
import {Space} from './space.js';
import {bytesSigned, bytesText, countSigned, countText, csvCell, exactBytes, fitCanvas, h, replace, saveText} from './util.js';

const GUTTER = 112;

export class DiffView {
  constructor(app) {
    this.app = app;
    this.id = 'diff';
    this.title = 'Diff';
    this.kept = [];
    this.element = h('section.view', {id: 'view-diff'});
  }

  show() {
    this.stateChanged();
  }

  resize() {
    if (this.canvas) this.drawMap();
  }

  // sides: what can be compared: [name, () -> State]
  sides() {
    const {page} = this.app;
    const sides = page.states.map((state) => [state.label, () => state]);
    for (const state of this.kept) sides.push([state.label, () => state]);
    if (page.history) sides.push(['the event shown', () => page.history.stateAt(this.app.event)]);
    return sides;
  }

  stateChanged() {
    const sides = this.sides();
    this.a = Math.min(this.a ?? 0, sides.length - 1);
    this.b = Math.min(this.b ?? (this.app.page.states.length > 1 ? 1 : sides.length - 1), sides.length - 1);
    const picker = (name) => h('select', {id: `diff-${name}`, 'aria-label': `side ${name.toUpperCase()}`, onchange: (event) => {
      this[name] = Number(event.target.value);
      this.stateChanged();
    }}, sides.map(([text], i) => h('option', {value: i, selected: i === this[name]}, text)));
    const file = h('input', {type: 'file', accept: '.json', id: 'diff-file', hidden: true, onchange: () => this.open(file.files[0])});
    const bar = h('div.bar', h('label', h('b.side', 'A'), ' ', picker('a')), h('label', h('b.side', 'B'), ' ', picker('b')),
      this.app.page.history && h('button', {type: 'button', id: 'diff-keep', onclick: () => this.keep()}, 'keep the event shown'),
      h('button', {type: 'button', onclick: () => file.click()}, 'open a snapshot…'), file, h('span.grow'),
      h('button', {type: 'button', id: 'diff-csv', onclick: () => this.csv()}, 'blocks as CSV'));
    if (sides.length < 2) {
      replace(this.element, bar, h('div.card.empty', h('b', 'There is one state only'),
        h('p', 'Open a second snapshot here, or write the page with two: '), h('code', 'vmpool html A.json B.json -o diff.html')),
        this.error && h('p.verdict.no', this.error));
      return;
    }
    this.stateA = sides[this.a][1]();
    this.stateB = sides[this.b][1]();
    this.result = compare(this.stateA, this.stateB);
    this.canvas = h('canvas', {id: 'diff-map'});
    replace(this.element, bar, this.error && h('p.verdict.no', this.error), this.summary(), h('div.card.map', this.canvas), this.mapLegend(), h('div.two', this.figures(), this.sizes()),
      this.tags());
    this.drawMap();
  }

  keep() {
    const {app} = this;
    this.kept.push(app.page.history.stateAt(app.event));
    this.a = app.page.states.length + this.kept.length - 1;
    this.b = this.a + 1;
    this.stateChanged();
  }

  async open(file) {
    this.error = null;
    try {
      const document = parseSnapshot(await file.text());
      this.add(document, file.name);
    } catch (error) {
      this.error = `${file.name}: ${error.message}`;
    }
    this.stateChanged();
  }

  add(document, name) {
    const {app} = this;
    const space = Space.union(app.state.space.ranges, rangesOf(document));
    const moved = space.ranges.length !== app.state.space.ranges.length || space.bytes !== app.state.space.bytes;
    const own = moved ? new Space(rangesOf(document)) : space;
    const state = stateOfSnapshot(document, own);
    state.label = name;
    this.kept.push(state);
    this.b = this.app.page.states.length + this.kept.length - 1;
  }

  summary() {
    const {onlyA, both, onlyB} = this.result;
    const card = (name, figure, set, what) => h('div.card.figure', h('span', name), h('b', {'data-figure': figure, 'data-blocks': set.count, 'data-bytes': set.bytes, title: exactBytes(set.bytes)}, bytesText(set.bytes)),
      h('p.quiet', `${countText(set.count)} blocks ${what}`));
    return h('div.cards', card('only in A', 'only_a', onlyA, 'went away'), card('in both', 'both', both, 'stayed where they are'), card('only in B', 'only_b', onlyB, 'are new'),
      h('div.card.figure', h('span', 'live, B − A'), h('b', {'data-figure': 'live_change', 'data-bytes': onlyB.bytes - onlyA.bytes}, bytesSigned(onlyB.bytes - onlyA.bytes)),
        h('p.quiet', `${this.stateA.label} → ${this.stateB.label}`)));
  }

  figures() {
    const names = [['reserved', 'reserved'], ['mapped', 'mapped'], ['live', 'live'], ['requested', 'requested'], ['parked', 'parked'], ['pending', 'pending'], ['spare', 'spare'],
      ['deviceFree', 'device free']];
    const a = this.stateA.totals;
    const b = this.stateB.totals;
    return h('div.card', h('h2', 'Figures'), h('table.data', h('thead', h('tr', h('th', ''), h('th.number', 'A'), h('th.number', 'B'), h('th.number', 'B − A'))),
      h('tbody', names.filter(([key]) => a[key] != null || b[key] != null).map(([key, name]) => h('tr', h('th', {scope: 'row'}, name), h('td.number', bytesText(a[key])), h('td.number', bytesText(b[key])),
        h('td.number', {'data-change': key, 'data-bytes': a[key] == null || b[key] == null ? '' : b[key] - a[key]}, a[key] == null || b[key] == null ? '–' : a[key] === b[key] ? '±0' : bytesSigned(b[key] - a[key])))),
      h('tr', h('th', {scope: 'row'}, 'blocks'), h('td.number', countText(this.stateA.blocks.n)), h('td.number', countText(this.stateB.blocks.n)), h('td.number', countSigned(this.stateB.blocks.n - this.stateA.blocks.n))))));
  }

  // Where the difference comes from, by size.
  sizes() {
    const rows = changes(this.result.rows, (row) => row.len);
    return h('div.card', h('h2', 'By size'), rows.length === 0 ? h('p.quiet', 'The same blocks on both sides.') :
      h('table.data', h('thead', h('tr', h('th.number', 'size'), h('th', 'layer'), h('th.number', 'only A'), h('th.number', 'only B'), h('th.number', 'B − A'))),
        h('tbody', rows.slice(0, 12).map((row) => h('tr', h('td.number', bytesText(row.key)), h('td', LAYERS[row.layer]), h('td.number', countText(row.a)), h('td.number', countText(row.b)), h('td.number', bytesSigned(row.bytes)))))),
      rows.length > 12 && h('p.quiet', `and ${countText(rows.length - 12)} more sizes, in the CSV`));
  }

  tags() {
    const rows = changes(this.result.rows, (row) => row.tag).filter((row) => row.key !== '');
    return rows.length > 0 && h('div.card', h('h2', 'By tag'), h('table.data', h('thead', h('tr', h('th', 'tag'), h('th.number', 'only A'), h('th.number', 'only B'), h('th.number', 'B − A'))),
      h('tbody', rows.slice(0, 20).map((row) => h('tr', h('td', row.key), h('td.number', countText(row.a)), h('td.number', countText(row.b)), h('td.number', bytesSigned(row.bytes)))))));
  }

  mapLegend() {
    const t = theme();
    const item = (color, text, hatched) => h('span', h('i', {class: hatched ? 'swatch hatched' : 'swatch', style: {'background-color': color}}), text);
    return h('div.legend', h('div', item(t.faint, 'in both'), item(t.retiring, 'only in A'), item(t.transit, 'only in B'), item(t.gaps, 'mapped')));
  }

  // Both on one axis: mapped as a thin line, blocks above.
  drawMap() {
    const {canvas} = this;
    const width = Math.floor(this.element.clientWidth) - 34;
    if (width < 100) return;
    const height = 132;
    const c = fitCanvas(canvas, width, height);
    const t = theme();
    const [a, b] = [this.stateA, this.stateB];
    if (a.space !== b.space && (a.space.bytes !== b.space.bytes || a.space.ranges[0]?.base !== b.space.ranges[0]?.base)) {
      c.fillStyle = t.muted;
      c.font = `12px ${t.font}`;
      c.fillText('The two pools lie at different addresses (two processes): they can’t be drawn on one axis.', 16, 40);
      return;
    }
    const spans = [a, b].flatMap((s) => [s.mappings, s.blocks].flatMap((items) => Array.from({length: items.n}, (_, i) => [items.off[i], items.off[i] + items.len[i]])));
    const axis = new Axis(spans.sort((x, y) => x[0] - y[0]), a.space.bytes, {granule: this.app.granule});
    const inner = width - GUTTER - 14;
    const x = (place) => GUTTER + (axis.toLine(place) / axis.length) * inner;
    const lane = (top, name, state, only, color) => {
      c.fillStyle = t.ink;
      c.font = `600 12px ${t.font}`;
      c.textAlign = 'right';
      c.textBaseline = 'middle';
      c.fillText(name, GUTTER - 12, top + 24);
      c.fillStyle = t.lane;
      c.fillRect(GUTTER, top, inner, 48);
      const bar = (off, len, y, h2) => c.fillRect(x(off), y, Math.max(1, x(off + len) - x(off)), h2);
      c.fillStyle = t.gaps;
      for (let i = 0; i < state.mappings.n; i++) bar(state.mappings.off[i], state.mappings.len[i], top + 40, 8);
      c.fillStyle = t.faint;
      for (let i = 0; i < state.blocks.n; i++) bar(state.blocks.off[i], state.blocks.len[i], top, 38);
      c.fillStyle = color;
      for (const i of only) bar(state.blocks.off[i], state.blocks.len[i], top, 38);
    };
    lane(8, 'A', a, this.result.indexA, t.retiring);
    lane(72, 'B', b, this.result.indexB, t.transit);
    for (const piece of axis.pieces) {
      if (!piece.gap) continue;
      const left = GUTTER + (piece.start / axis.length) * inner;
      c.fillStyle = hatch(c, t.faint, t.page);
      c.fillRect(left, 4, (piece.length / axis.length) * inner, height - 12);
    }
  }

  csv() {
    if (!this.result) return;
    const lines = ['side,address,bytes,requested,layer,tag'];
    for (const row of this.result.rows) lines.push([row.side, row.address, row.len, row.req, LAYERS[row.layer], row.tag].map(csvCell).join(','));
    saveText('vmpool-diff.csv', `${lines.join('\n')}\n`, 'text/csv');
  }
}

// compare walks both lists of blocks, which rise by address.
export function compare(a, b) {
  const result = {onlyA: {count: 0, bytes: 0}, onlyB: {count: 0, bytes: 0}, both: {count: 0, bytes: 0}, indexA: [], indexB: [], rows: []};
  const address = (state, i) => state.space.address(state.blocks.off[i]);
  const take = (side, state, i) => {
    const set = side === 'A' ? result.onlyA : result.onlyB;
    set.count++;
    set.bytes += state.blocks.len[i];
    (side === 'A' ? result.indexA : result.indexB).push(i);
    result.rows.push({side, address: `0x${address(state, i).toString(16)}`, len: state.blocks.len[i], req: state.blocks.req[i], layer: state.blocks.layer[i],
                      tag: state.labelOf(i)});
  };
  let i = 0;
  let k = 0;
  while (i < a.blocks.n || k < b.blocks.n) {
    const x = i < a.blocks.n ? address(a, i) : null;
    const y = k < b.blocks.n ? address(b, k) : null;
    const same = x !== null && x === y && a.blocks.len[i] === b.blocks.len[k] && sameBirth(a, i, b, k);
    if (same) {
      result.both.count++;
      result.both.bytes += a.blocks.len[i];
      i++;
      k++;
    } else if (y === null || (x !== null && x <= y)) {
      take('A', a, i++);
    } else {
      take('B', b, k++);
    }
  }
  return result;
}

// Where both births are known, a block at the same place that was made anew is another one.
const sameBirth = (a, i, b, k) => a.blocks.born[i] < 0 || b.blocks.born[k] < 0 || a.blocks.born[i] === b.blocks.born[k];

function changes(rows, keyOf) {
  const byKey = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const one = byKey.get(key) ?? {key, layer: row.layer, a: 0, b: 0, bytes: 0};
    if (row.side === 'A') one.a++;
    else one.b++;
    one.bytes += row.side === 'A' ? -row.len : row.len;
    byKey.set(key, one);
  }
  return [...byKey.values()].sort((x, y) => Math.abs(y.bytes) - Math.abs(x.bytes));
}
