// timeline.js: live, gaps, pending and parked over the events of the log, and below them when what happened.
//
// Owns: the choice of points (at most five events per pixel column are drawn: first, last, lowest and highest live,
// highest mapped, so that no peak is lost), the chart, the rows of markers. Chart: uPlot.
import uPlot from 'uplot';
import {KIND} from './history.js';
import {theme} from './theme.js';
import {bytesText, countText, fitCanvas, h, replace, timeText} from './util.js';

const LEAST_HEIGHT = 300;
const MOST_HEIGHT = 460;
const AXIS_LEFT = 120;

// Rows of markers: what a row counts, and how it is drawn.
const ROWS = [
  {name: 'maps', kinds: [KIND.map], bars: true, color: 'live'},
  {name: 'unmaps', kinds: [KIND.unmap], bars: true, color: 'muted'},
  {name: 'takes', kinds: [KIND.take, KIND.share], bars: true, color: 'retiring'},
  {name: 'trim, defragment', kinds: [KIND.defragment, KIND.trim, KIND.limit], mark: 'diamond', color: 'transit'},
  {name: 'suspend, resume', kinds: [KIND.suspend, KIND.resume], mark: 'diamond', color: 'buddy'},
  {name: 'steps', kinds: [KIND.step], mark: 'tick', color: 'muted'},
  {name: 'marks', kinds: [KIND.mark, KIND.snapshot], mark: 'flag', color: 'ink'},
  {name: 'out of memory', kinds: [KIND.oom], mark: 'triangle', color: 'broken'},
];
const ROW_HEIGHT = 17;

export class TimelineView {
  constructor(app) {
    this.app = app;
    this.id = 'timeline';
    this.title = 'Timeline';
    this.byTime = false;
    this.element = h('section.view', {id: 'view-timeline'});
    if (!app.page.history) {
      this.element.append(h('div.card.empty', h('b', 'This page holds no event log'),
        h('p', 'A log adds the timeline and the state at any event: '), h('code', 'vmpool html SNAPSHOT LOG -o page.html'),
        h('p.quiet', 'vmpool record -- COMMAND, or vmpool replay TRACE --log FILE, writes one.')));
      return;
    }
    this.build();
  }

  build() {
    const choice = (value, text) => h('button', {type: 'button', 'aria-pressed': String(this.byTime === value), 'data-by': value ? 'time' : 'event',
      onclick: () => this.setByTime(value)}, text);
    this.chartBox = h('div.chart', {id: 'timeline-chart'});
    this.rows = h('canvas.rows', {id: 'timeline-rows'});
    this.rows.addEventListener('pointermove', (event) => this.rowHover(event));
    this.rows.addEventListener('pointerleave', () => this.app.tooltip.hide());
    this.rows.addEventListener('click', (event) => this.rowClick(event));
    this.legend = h('div.legend');
    this.seen = h('span.seen', {id: 'timeline-seen'});
    this.choices = h('div.group', choice(false, 'by event'), choice(true, 'by time'));
    this.element.append(h('div.bar', this.choices, h('button', {type: 'button', id: 'timeline-all', onclick: () => this.see(0, this.total() - 1)}, 'all'),
      h('button', {type: 'button', id: 'timeline-peak', onclick: () => this.app.setEvent(this.app.peak)}, 'go to the peak'), h('span.grow'), this.seen),
      h('div.card', this.chartBox, this.rows), this.legend,
      h('p.hint', 'Drag across the chart to zoom in, double-click to see all, click to go to that event. Markers show what happened below the curve; click one to go there.'));
  }

  // Events are counted from 0 here, after those that only say what was there before.
  total() {
    return this.app.page.history.n - this.app.page.history.initial;
  }

  xOf(event) {
    const {history} = this.app.page;
    return this.byTime ? (history.time[event] - history.time[history.initial]) / 1e6 : event - history.initial + 1;
  }

  eventOf(x) {
    const {history} = this.app.page;
    if (!this.byTime) return Math.min(history.n - 1, Math.max(history.initial, Math.round(x) - 1 + history.initial));
    const time = x * 1e6 + history.time[history.initial];
    let low = history.initial;
    let high = history.n - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (history.time[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  show() {
    if (this.app.page.history && !this.chart) this.see(0, this.total() - 1);
    this.resize();
  }

  resize() {
    if (!this.app.page.history) return;
    this.draw();
  }

  stateChanged() {
    this.chart?.redraw(false);
  }

  setByTime(byTime) {
    this.byTime = byTime;
    for (const one of this.choices.children) one.setAttribute('aria-pressed', String((one.dataset.by === 'time') === byTime));
    this.draw();
  }

  // see: events first..last, both included.
  see(first, last) {
    const {history} = this.app.page;
    this.first = Math.max(history.initial, history.initial + Math.floor(first));
    this.last = Math.min(history.n - 1, history.initial + Math.ceil(last));
    this.draw();
  }

  points(width) {
    const {history} = this.app.page;
    const {live, mapped} = history;
    const count = this.last - this.first + 1;
    const perColumn = Math.max(1, count / Math.max(50, width));
    const events = [];
    for (let column = 0; column * perColumn < count; column++) {
      const from = this.first + Math.floor(column * perColumn);
      const to = Math.min(this.last, this.first + Math.floor((column + 1) * perColumn) - 1);
      if (to < from) continue;
      const keep = new Set([from, to]);
      let low = from;
      let high = from;
      let top = from;
      for (let i = from; i <= to; i++) {
        if (live[i] < live[low]) low = i;
        if (live[i] > live[high]) high = i;
        if (mapped[i] > mapped[top]) top = i;
      }
      keep.add(low).add(high).add(top);
      events.push(...[...keep].sort((a, b) => a - b));
    }
    return events;
  }

  // data: x, then mapped (top of parked), top of pending, top of gaps, live.
  data(width) {
    const {history} = this.app.page;
    const events = this.points(width);
    const columns = [[], [], [], [], []];
    for (const event of events) {
      const mapped = history.mapped[event];
      const live = Math.min(history.live[event], mapped); // suspended blocks are live without memory
      const parked = Math.min(history.parked[event], mapped - live);
      const pending = Math.min(history.pendingAt(event) ?? 0, parked);
      columns[0].push(this.xOf(event));
      columns[1].push(mapped);
      columns[2].push(mapped - parked + pending);
      columns[3].push(mapped - parked);
      columns[4].push(live);
    }
    if (this.byTime) strictlyRising(columns);
    return columns;
  }

  draw() {
    const width = Math.floor(this.chartBox.clientWidth);
    if (width < 100 || this.first === undefined) return;
    this.width = width;
    const data = this.data(width);
    this.chart?.destroy();
    this.chart = new uPlot(this.options(width), data, this.chartBox);
    this.drawLegend();
    const {history} = this.app.page;
    replace(this.seen, `events ${countText(this.first - history.initial + 1)} to ${countText(this.last - history.initial + 1)} of ${countText(this.total())}, ${timeText(history.time[this.last] - history.time[this.first])}`);
  }

  options(width) {
    const t = theme();
    const stepped = uPlot.paths.stepped({align: 1});
    const series = (label, color) => ({label, stroke: color, fill: color, width: 0, paths: stepped, points: {show: false}});
    const axis = {stroke: t.muted, grid: {stroke: t.line, width: 1}, ticks: {stroke: t.line, width: 1}, font: `11px ${t.font}`};
    return {
      width, height: Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, this.app.main.clientHeight - 320)), padding: [10, 40, 0, 0],
      legend: {show: false},
      cursor: {drag: {x: true, y: false, setScale: false}, points: {show: false}},
      scales: {x: {time: false, range: (u, min, max) => [min, max === min ? min + 1 : max]}, y: {range: (u, min, max) => [0, Math.max(1, max) * 1.05]}},
      axes: [
        {...axis, size: 30, space: 96, values: (u, values) => values.map((v) => (this.byTime ? timeText(v * 1e6) : countText(v)))},
        {...axis, size: AXIS_LEFT, splits: (u, i, min, max) => byteSplits(max), values: (u, values) => values.map(bytesText)},
      ],
      series: [{}, series('parked', t.parked), series('pending', t.pending), series('gaps', t.gaps), series('live', t.live)],
      hooks: {
        draw: [(u) => this.drawn(u)],
        setSelect: [(u) => this.selected(u)],
        setCursor: [(u) => this.cursorMoved(u)],
        ready: [(u) => this.listen(u)],
      },
    };
  }

  listen(u) {
    u.over.addEventListener('click', () => {
      if (u.cursor.left >= 0 && !this.dragged) this.app.setEvent(this.eventOf(u.posToVal(u.cursor.left, 'x')));
      this.dragged = false;
    });
    u.over.addEventListener('dblclick', () => this.see(0, this.total() - 1));
    u.over.addEventListener('pointerleave', () => this.app.tooltip.hide());
    u.over.addEventListener('pointermove', (event) => {
      this.pointer = event;
      this.cursorMoved(u);
    });
  }

  selected(u) {
    if (u.select.width < 4) return;
    this.dragged = true;
    const {history} = this.app.page;
    const first = this.eventOf(u.posToVal(u.select.left, 'x'));
    const last = this.eventOf(u.posToVal(u.select.left + u.select.width, 'x'));
    if (last > first) this.see(first - history.initial, last - history.initial);
  }

  cursorMoved(u) {
    if (!this.pointer || u.cursor.left < 0) return;
    this.app.tooltip.show(this.pointer, this.lines(this.eventOf(u.posToVal(u.cursor.left, 'x'))));
  }

  lines(event) {
    const {history} = this.app.page;
    const mapped = history.mapped[event];
    const pending = history.pendingAt(event);
    return [['title', `event ${countText(event - history.initial + 1)}`], ['at', timeText(history.time[event] - history.time[history.initial])],
      ['mapped', bytesText(mapped)], ['live', bytesText(history.live[event])],
      ['gaps', bytesText(Math.max(0, mapped - history.live[event] - history.parked[event]))], ['parked', bytesText(history.parked[event])],
      ...(pending === null ? [] : [['pending', `${bytesText(pending)} (last sample)`]])];
  }

  drawn(u) {
    this.chart = u; // the first time, the constructor hasn't returned yet
    this.drawCursor(u);
    this.drawRows();
  }

  // The event that the page shows, as a line.
  drawCursor(u) {
    const {event} = this.app;
    if (event < this.first || event > this.last) return;
    const x = Math.round(u.valToPos(this.xOf(event), 'x', true)) + 0.5;
    const {ctx} = u;
    ctx.save();
    ctx.strokeStyle = theme().ink;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, u.bbox.top);
    ctx.lineTo(x, u.bbox.top + u.bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  // ---- rows of markers ----

  activeRows() {
    if (!this.active) {
      const {kind} = this.app.page.history;
      const there = new Set();
      for (let i = this.app.page.history.initial; i < kind.length; i++) there.add(kind[i]);
      this.active = ROWS.filter((row) => row.kinds.some((one) => there.has(one)));
    }
    return this.active;
  }

  xToPixel(event) {
    return AXIS_LEFT + this.chart.valToPos(this.xOf(event), 'x');
  }

  drawRows() {
    if (!this.chart) return;
    const rows = this.activeRows();
    const t = theme();
    const c = fitCanvas(this.rows, this.width, Math.max(1, rows.length * ROW_HEIGHT + 6));
    const {history} = this.app.page;
    this.buckets = rows.map(() => new Map());
    const row = new Map();
    rows.forEach((one, i) => one.kinds.forEach((kind) => row.set(kind, i)));
    for (let event = this.first; event <= this.last; event++) {
      const index = row.get(history.kind[event]);
      if (index === undefined) continue;
      const x = Math.round(this.xToPixel(event));
      const bucket = this.buckets[index].get(x) ?? {x, count: 0, bytes: 0, event, last: event};
      bucket.count++;
      bucket.bytes += history.bytes[event];
      bucket.last = event;
      this.buckets[index].set(x, bucket);
    }
    rows.forEach((one, i) => drawRow(c, t, one, this.buckets[i], i * ROW_HEIGHT + 4, this.width));
    if (this.app.event >= this.first && this.app.event <= this.last) {
      c.fillStyle = t.ink;
      c.fillRect(Math.round(this.xToPixel(this.app.event)), 0, 1.5, rows.length * ROW_HEIGHT + 6);
    }
  }

  bucketAt(event) {
    const box = this.rows.getBoundingClientRect();
    const index = Math.floor((event.clientY - box.top - 4) / ROW_HEIGHT);
    const buckets = this.buckets?.[index];
    if (!buckets) return null;
    const x = Math.round(event.clientX - box.left);
    for (const d of [0, 1, -1, 2, -2, 3, -3, 4, -4]) if (buckets.has(x + d)) return {row: this.activeRows()[index], ...buckets.get(x + d)};
    return null;
  }

  rowHover(event) {
    const found = this.bucketAt(event);
    if (!found) return this.app.tooltip.hide();
    const {history} = this.app.page;
    const lines = [['title', found.count === 1 ? history.describe(found.event) : `${found.row.name}: ${countText(found.count)}`],
      ['event', found.count === 1 ? countText(found.event - history.initial + 1) : `${countText(found.event - history.initial + 1)} to ${countText(found.last - history.initial + 1)}`],
      ['at', timeText(history.time[found.event] - history.time[history.initial])]];
    if (found.bytes > 0) lines.push(['bytes', bytesText(found.bytes)]);
    const text = history.strings[history.tag[found.event]];
    if (found.count === 1 && text) lines.push(['text', text]);
    return this.app.tooltip.show(event, lines);
  }

  rowClick(event) {
    const found = this.bucketAt(event);
    if (found) this.app.setEvent(found.event);
  }

  drawLegend() {
    const item = (key, text) => h('span', h(`i.swatch.fill-${key}`), text);
    const {history} = this.app.page;
    replace(this.legend, h('div', h('b', 'bytes'), item('live', 'live'), item('gaps', 'gaps in chunks'),
      history.samples.n > 0 && item('pending', 'pending (sampled)'), item('parked', 'parked; the top is mapped')));
  }
}

function drawRow(c, t, row, buckets, y, width) {
  c.font = `11px ${t.font}`;
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  c.fillStyle = t.muted;
  c.fillText(row.name, AXIS_LEFT - 8, y + ROW_HEIGHT / 2 - 1);
  c.fillStyle = t.line;
  c.fillRect(AXIS_LEFT, y + ROW_HEIGHT - 3, width - AXIS_LEFT - 40, 1);
  const most = Math.max(1, ...[...buckets.values()].map((bucket) => bucket.bytes));
  c.fillStyle = c.strokeStyle = t[row.color];
  for (const {x, bytes} of buckets.values()) {
    if (row.bars) {
      const height = Math.max(2, (ROW_HEIGHT - 5) * Math.sqrt(bytes / most));
      c.fillRect(x - 0.5, y + ROW_HEIGHT - 3 - height, 1.5, height);
    } else {
      glyph(c, row.mark, x, y + ROW_HEIGHT / 2 - 2);
    }
  }
}

function glyph(c, mark, x, y) {
  c.beginPath();
  if (mark === 'diamond') {
    c.moveTo(x, y - 5);
    c.lineTo(x + 4.5, y);
    c.lineTo(x, y + 5);
    c.lineTo(x - 4.5, y);
  } else if (mark === 'triangle') {
    c.moveTo(x - 5, y - 4);
    c.lineTo(x + 5, y - 4);
    c.lineTo(x, y + 5);
  } else if (mark === 'flag') {
    c.rect(x - 0.75, y - 6, 1.5, 12);
    c.rect(x, y - 6, 7, 5);
  } else {
    c.rect(x - 0.5, y - 4, 1, 9);
  }
  c.fill();
}

// byteSplits: about five marks at powers of two, or halves of them.
function byteSplits(max) {
  let step = 2 ** Math.floor(Math.log2(Math.max(1, max)) - 2);
  while (max / step > 7) step *= 2;
  const splits = [];
  for (let value = 0; value <= max; value += step) splits.push(value);
  return splits;
}

// Events of one moment: uPlot wants x to rise.
function strictlyRising(columns) {
  const x = columns[0];
  for (let i = 1; i < x.length; i++) if (x[i] <= x[i - 1]) x[i] = x[i - 1] + 1e-9;
}

