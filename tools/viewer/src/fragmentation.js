// fragmentation.js: what stands between free bytes and a large block: free sizes, buddy's orders, slab spans, rounding.
import {LAYERS, STATE, isIdle} from './state.js';
import {bytesText, countText, exactBytes, h, replace, shareText} from './util.js';

export class FragmentationView {
  constructor(app) {
    this.app = app;
    this.id = 'fragmentation';
    this.title = 'Fragmentation';
    this.element = h('section.view', {id: 'view-fragmentation'});
  }

  show() {
    this.stateChanged();
  }

  stateChanged() {
    const {state} = this.app;
    const free = mappedFree(state);
    replace(this.element, this.figures(state, free),
      h('div.two', this.freeSizes(state, free), this.rounding(state)),
      state.areas.length > 0 ? h('div.two', this.orders(state), this.spans(state))
        : h('div.card.empty', h('b', 'Free lists are known at the snapshot only'),
            h('p', 'Buddy orders and slab spans are part of a snapshot, not of the log.')));
  }

  figures(state, free) {
    const {totals} = state;
    const total = free.reduce((sum, one) => sum + one, 0);
    const largest = free.length ? Math.max(...free.slice(0, 50000)) : 0;
    const squares = free.reduce((sum, one) => sum + one * one, 0);
    const card = (name, figure, value, text, what) => h('div.card.figure', h('span', name), h('b', {'data-figure': figure, 'data-value': value}, text), h('p.quiet', what));
    return h('div.cards',
      card('fragmentation', 'fragmentation', totals.mapped ? 1 - totals.live / totals.mapped : 0,
        shareText(totals.mapped - totals.live, totals.mapped), '1 − live ÷ mapped: memory held beyond what is handed out'),
      card('split', 'split', total ? 1 - largest / total : 0, total ? shareText(total - largest, total) : '–',
        '1 − largest ÷ all free bytes that are mapped; remapping makes this harmless'),
      card('squares', 'squares', totals.mapped ? squares / totals.mapped ** 2 : 0, totals.mapped ? (squares / totals.mapped ** 2).toFixed(4) : '–',
        'Σ free² ÷ mapped², the figure that memory_viz writes to its console: large free stretches weigh most'),
      card('rounding', 'rounding', totals.live - totals.requested, bytesText(totals.live - totals.requested),
        `${shareText(totals.live - totals.requested, totals.live)} of the live bytes were not asked for`));
  }

  // Free stretches of mapped memory, by powers of two.
  freeSizes(state, free) {
    const bins = new Map();
    for (const bytes of free) {
      const power = Math.floor(Math.log2(bytes));
      const bin = bins.get(power) ?? {power, count: 0, bytes: 0};
      bin.count++;
      bin.bytes += bytes;
      bins.set(power, bin);
    }
    const rows = [...bins.values()].sort((a, b) => a.power - b.power);
    const total = rows.reduce((sum, bin) => sum + bin.bytes, 0);
    return h('div.card', {id: 'free-sizes'}, h('div.head', h('h2', 'Free sizes'), h('span.quiet', `${countText(free.length)} stretches of mapped memory without a live block, ${bytesText(total)}`)),
      bars(rows.map((bin) => ({name: `${bytesText(2 ** bin.power)} …`, value: bin.bytes, fill: 'gaps', text: bytesText(bin.bytes), note: `${countText(bin.count)} ×`,
        title: `${countText(bin.count)} stretches from ${bytesText(2 ** bin.power)} to below ${bytesText(2 ** (bin.power + 1))}: ${exactBytes(bin.bytes)}`})),
      'Nothing that is mapped is free.'));
  }

  // What rounding adds, by layer, then the sizes that waste most.
  rounding(state) {
    const layers = state.byLayer();
    const {blocks} = state;
    const bySize = new Map();
    for (let i = 0; i < blocks.n; i++) {
      const slack = blocks.len[i] - blocks.req[i];
      if (slack <= 0) continue;
      const one = bySize.get(blocks.len[i]) ?? {size: blocks.len[i], count: 0, slack: 0, layer: blocks.layer[i]};
      one.count++;
      one.slack += slack;
      bySize.set(blocks.len[i], one);
    }
    const worst = [...bySize.values()].sort((a, b) => b.slack - a.slack).slice(0, 10);
    return h('div.card', {id: 'rounding'}, h('div.head', h('h2', 'Rounding'), h('span.quiet', 'what blocks hold beyond what was asked for')),
      h('table.data', h('thead', h('tr', h('th', 'layer'), h('th.number', 'blocks'), h('th.number', 'live'), h('th.number', 'asked for'), h('th.number', 'added'))),
        h('tbody', layers.map((one, i) => h('tr', h('td', h(`i.swatch.fill-${LAYERS[i]}`), ' ', one.name), h('td.number', {'data-figure': `${one.name}_blocks`, 'data-value': one.blocks}, countText(one.blocks)),
          h('td.number', {'data-figure': `${one.name}_live`, 'data-bytes': one.bytes}, bytesText(one.bytes)), h('td.number', bytesText(one.requested)), h('td.number', one.bytes ? `${bytesText(one.bytes - one.requested)} · ${shareText(one.bytes - one.requested, one.bytes)}` : '–'))))),
      worst.length > 0 && h('h3', 'Sizes that add most'),
      worst.length > 0 && bars(worst.map((one) => ({name: bytesText(one.size), value: one.slack, fill: LAYERS[one.layer], text: bytesText(one.slack), note: `${countText(one.count)} ×`})), ''));
  }

  orders(state) {
    const granule = this.app.granule;
    const rows = new Map();
    for (const area of state.areas) {
      if (area.layer !== 'buddy') continue;
      const order = Math.round(Math.log2(area.len / granule));
      const row = rows.get(order) ?? {order, free: 0, held: 0, freeBytes: 0};
      if (area.what === 'free') {
        row.free++;
        row.freeBytes += area.len;
      } else {
        row.held++;
      }
      rows.set(order, row);
    }
    const list = [...rows.values()].sort((a, b) => a.order - b.order);
    const most = Math.max(1, ...list.map((row) => row.free + row.held));
    const squares = (kind, n) => h(`span.units.${kind}`, {style: {width: `${(100 * n) / most}%`}});
    return h('div.card', {id: 'orders'}, h('div.head', h('h2', 'Buddy orders'), h('span.quiet', 'pieces of address space; free ones cost no memory')),
      list.length === 0 ? h('p.quiet', 'Buddy holds nothing.') :
        h('table.data', h('thead', h('tr', h('th', 'order'), h('th', 'size'), h('th.wide', 'pieces'), h('th.number', 'free'), h('th.number', 'held'))),
          h('tbody', list.map((row) => h('tr', h('td', row.order), h('td', bytesText(2 ** row.order * granule)), h('td.wide', h('div.unitbar', squares('free', row.free), squares('held', row.held))),
            h('td.number', {'data-order': row.order, 'data-free': row.free}, countText(row.free)), h('td.number', countText(row.held)))))),
      h('div.legend', h('div', h('span', h('i.swatch.pale'), 'free'), h('span', h('i.swatch.fill-buddy'), 'held by mid, by a region or by a block'))));
  }

  // How full slab spans are, in tenths, and which sizes they serve.
  spans(state) {
    const {spans} = state;
    const tenths = new Array(10).fill(0);
    const bySize = new Map();
    let used = 0;
    let bytes = 0;
    for (const span of spans) {
      used += span.used * span.object;
      bytes += span.len;
      tenths[Math.min(9, Math.floor((10 * span.used) / Math.max(1, span.objects)))]++;
      const one = bySize.get(span.object) ?? {object: span.object, spans: 0, used: 0, objects: 0};
      one.spans++;
      one.used += span.used;
      one.objects += span.objects;
      bySize.set(span.object, one);
    }
    const classes = [...bySize.values()].sort((a, b) => a.object - b.object);
    return h('div.card', {id: 'spans'}, h('div.head', h('h2', 'Slab spans'), h('span.quiet', `${countText(spans.length)} spans, ${bytesText(bytes)}, ${shareText(used, bytes)} used`)),
      spans.length === 0 ? h('p.quiet', 'Slab holds no span: nothing small was ever live, or all of it went back.') : [
        h('div.tenths', {'aria-hidden': 'true'}, tenths.map((n, i) => h('i', {title: `${countText(n)} spans are ${10 * i} to ${10 * i + 10} % used`, style: {height: `${n ? Math.max(4, (100 * n) / Math.max(...tenths)) : 0}%`}}))),
        h('div.tenths-axis.quiet', h('span', 'empty'), h('span', 'spans by how full they are'), h('span', 'full')),
        h('h3', 'By size of object'),
        h('div.scroll', bars(classes.map((one) => ({name: bytesText(one.object), value: one.used, of: one.objects, fill: 'slab', text: `${countText(one.used)} of ${countText(one.objects)}`, note: `${countText(one.spans)} spans`})), ''))]);
  }
}

// bars: a chart of rows: name, bar, text.
function bars(rows, empty) {
  if (rows.length === 0) return h('p.quiet', empty);
  const most = Math.max(...rows.map((row) => row.of ?? row.value), 1);
  return h('div.bars', rows.map((row) => [h('span.name', row.name),
    h('span.track', {title: row.title}, row.of ? h('i.frame', {style: {width: `${(100 * row.of) / most}%`}}, h(`i.fill-${row.fill}`, {style: {width: `${(100 * row.value) / Math.max(1, row.of)}%`}}))
      : h(`i.fill-${row.fill}`, {style: {width: `${(100 * row.value) / most}%`}})), h('span.number', row.text), h('span.quiet.number', row.note ?? '')]));
}

// mappedFree: lengths of the stretches that are mapped (or parked), hold no live block, and lie together.
export function mappedFree(state) {
  const {mappings, blocks} = state;
  const free = [];
  let open = -1; // start of the stretch that is growing
  let end = -1;
  let b = 0;
  const close = () => {
    if (open >= 0 && end > open) free.push(end - open);
    open = -1;
  };
  for (let m = 0; m < mappings.n; m++) {
    if (mappings.state[m] !== STATE.mapped && !isIdle(mappings.state[m])) continue;
    let at = mappings.off[m];
    const stop = at + mappings.len[m];
    if (at !== end) close();
    while (b < blocks.n && blocks.off[b] + blocks.len[b] <= at) b++;
    while (at < stop) {
      const block = b < blocks.n && blocks.off[b] < stop ? b : -1;
      const until = block < 0 ? stop : Math.max(at, blocks.off[block]);
      if (until > at && open < 0) open = at;
      end = until;
      if (block < 0) break;
      close();
      at = Math.min(stop, blocks.off[block] + blocks.len[block]);
      end = at;
      if (blocks.off[block] + blocks.len[block] <= stop) b++;
    }
    end = stop;
  }
  close();
  return free;
}
