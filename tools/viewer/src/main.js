// main.js: the page: which view, which state, what is selected; the keys that work everywhere.
//
// Owns: the one state that all views show (a snapshot, or the log at an event), the selection, the address in the
// location's hash ("#map&event=1200&at=0x7f0000000000"), so that a link leads to the same picture.
import {ChunksView} from './chunks.js';
import {ConfigView} from './config.js';
import {Details} from './details.js';
import {DiffView} from './diff.js';
import {FragmentationView} from './fragmentation.js';
import {LedgerView} from './ledger.js';
import {loadPage} from './load.js';
import {MapView} from './map.js';
import {PinsView} from './pins.js';
import {Scrubber} from './scrubber.js';
import {Search} from './search.js';
import {currentTheme, setTheme} from './theme.js';
import {TimelineView} from './timeline.js';
import {h, replace} from './util.js';

class Tooltip {
  constructor() {
    this.element = h('div.tooltip', {id: 'tooltip', role: 'status', hidden: true});
  }

  // lines: [['title', text], [name, value], ...]
  show(event, lines) {
    const [[, title], ...rest] = lines;
    replace(this.element, h('b', title), h('dl', rest.map(([name, value]) => [h('dt', name), h('dd', value)])));
    this.element.hidden = false;
    const {offsetWidth: width, offsetHeight: height} = this.element;
    const x = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
    this.element.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}

class App {
  constructor(page) {
    this.page = page;
    this.granule = page.documents[0]?.pool?.granule || page.history?.head.granule || 2097152;
    this.selection = null;
    this.tooltip = new Tooltip();
    const {history} = page;
    this.event = history ? (history.head.snapshot_event >= 0 ? history.head.snapshot_event : history.n - 1) : -1;
    this.state = page.states[0] ?? history.stateAt(this.event);
    this.peak = history ? highest(history) : -1;
    this.views = [LedgerView, MapView, ChunksView, TimelineView, FragmentationView, DiffView, PinsView, ConfigView].map((View) => new View(this));
    this.details = new Details(this);
    this.search = new Search(this);
    this.scrubber = new Scrubber(this);
  }

  // ---- what is shown ----

  open(id) {
    this.view = this.views.find((view) => view.id === id) ?? this.views[0];
    replace(this.main, this.view.element);
    for (const link of this.nav.children) link.setAttribute('aria-current', String(link.dataset.view === this.view.id));
    this.tooltip.hide();
    this.view.show();
    this.details.stateChanged();
    this.saveHash();
  }

  setEvent(event) {
    const {history} = this.page;
    if (!history) return;
    this.event = Math.min(history.n - 1, Math.max(history.initial - 1, event));
    this.setState(history.stateAt(this.event));
  }

  showSnapshot() {
    const {history} = this.page;
    if (history && history.head.snapshot_event >= 0) this.event = history.head.snapshot_event;
    this.setState(this.page.states[0]);
  }

  setState(state) {
    this.state = state;
    this.view.stateChanged?.();
    this.details.stateChanged();
    this.scrubber.stateChanged();
    this.drawTitle();
    this.saveHash();
  }

  select(selection) {
    this.selection = selection;
    this.details.stateChanged();
    this.view.draw?.();
    this.saveHash();
  }

  // go selects, and shows it on the map.
  go(selection) {
    this.selection = selection;
    this.open('map');
    this.view.seeSpan(selection.off, selection.len);
    this.details.stateChanged();
  }

  // ---- the frame ----

  mount() {
    this.main = h('main', {id: 'main'});
    this.nav = h('nav', {'aria-label': 'views'}, this.views.map((view, i) => h('a', {href: `#${view.id}`, 'data-view': view.id, title: `key ${i + 1}`, onclick: (event) => {
      event.preventDefault();
      this.open(view.id);
    }}, view.title)));
    this.titleBox = h('div.title');
    replace(document.getElementById('app'),
      h('header', h('b.brand', 'vmpool'), this.titleBox, h('span.grow'), this.search.element,
        h('button', {type: 'button', id: 'theme', title: 'light or dark (key d)', onclick: () => this.toggleTheme()}, 'theme')),
      h('div.body', this.nav, this.main, this.details.element), this.scrubber.element, this.tooltip.element);
    document.addEventListener('keydown', (event) => this.key(event));
    let waiting = 0;
    new ResizeObserver(() => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => this.resized());
    }).observe(this.main);
    addEventListener('hashchange', () => this.readHash());
    this.drawTitle();
    this.readHash();
    this.scrubber.stateChanged();
    requestAnimationFrame(() => this.scrubber.resize());
  }

  resized() {
    this.view.resize?.();
    this.scrubber.resize();
  }

  drawTitle() {
    const pool = this.page.documents[0]?.pool ?? this.page.history?.head.pool ?? {};
    replace(this.titleBox, h('b', {id: 'pool-name'}, pool.name || 'pool'), h('span.quiet', `${pool.driver ?? ''} device ${pool.device ?? 0}${pool.process ? `, process ${pool.process}` : ''}`),
      h('span.badge', {id: 'shown'}, this.state.label));
  }

  toggleTheme() {
    setTheme(currentTheme() === 'dark' ? 'light' : 'dark');
    this.refreshColors();
  }

  refreshColors() {
    this.view.refresh ? this.view.refresh() : this.view.show();
    this.scrubber.resize();
  }

  key(event) {
    if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      '/': () => this.search.input.focus(), Escape: () => this.select(null), d: () => this.toggleTheme(), '[': () => this.setEvent(this.event - (event.shiftKey ? 100 : 1)),
      ']': () => this.setEvent(this.event + (event.shiftKey ? 100 : 1)), '{': () => this.setEvent(this.event - 100), '}': () => this.setEvent(this.event + 100),
      n: () => this.scrubber.marker(1), N: () => this.scrubber.marker(-1), p: () => this.setEvent(this.peak), s: () => this.page.states.length > 0 && this.showSnapshot(),
      Home: () => this.page.history && this.setEvent(this.page.history.initial - 1), End: () => this.page.history && this.setEvent(this.page.history.n - 1),
      ' ': () => this.page.history && this.scrubber.toggle(),
    };
    const number = Number(event.key);
    if (number >= 1 && number <= this.views.length) keys[event.key] = () => this.open(this.views[number - 1].id);
    if (!keys[event.key]) return;
    if (event.key === ' ' && event.target.matches('button, a')) return;
    event.preventDefault();
    keys[event.key]();
  }

  // ---- the location ----

  saveHash() {
    if (!this.view) return;
    let hash = `#${this.view.id}`;
    if (this.page.history && this.state.kind === 'event') hash += `&event=${this.event - this.page.history.initial + 1}`;
    if (this.selection) hash += `&at=${this.state.space.addressText(this.selection.off)}`;
    history.replaceState(null, '', hash);
  }

  readHash() {
    const [id, ...rest] = decodeURIComponent(location.hash.slice(1)).split('&');
    const options = Object.fromEntries(rest.map((one) => one.split('=')));
    this.view ??= this.views[0];
    const event = Number(options.event);
    if (this.page.history && options.event !== undefined && Number.isInteger(event)) this.setEvent(event + this.page.history.initial - 1);
    this.open(id);
    if (!/^0x[0-9a-f]{1,16}$/i.test(options.at ?? '')) return;
    const place = this.state.space.placeOf(BigInt(options.at));
    if (place < 0) return;
    const block = this.state.blockAt(place);
    this.select(block < 0 ? {lane: 'place', off: place, len: 1} : {lane: 'blocks', off: this.state.blocks.off[block], len: this.state.blocks.len[block]});
    if (this.view.id === 'map') this.view.seeSpan(this.selection.off, this.selection.len);
  }
}

// highest: the first event with the most mapped bytes.
function highest(log) {
  let best = log.initial;
  for (let i = log.initial; i < log.n; i++) if (log.mapped[i] > log.mapped[best]) best = i;
  return best;
}

async function start() {
  const began = performance.now();
  try {
    const page = await loadPage();
    const app = new App(page);
    app.mount();
    document.body.dataset.ready = String(Math.round(performance.now() - began));
    globalThis.vmpool = app; // for those who want to look further, from the browser's console
  } catch (error) {
    replace(document.getElementById('app'), h('div.card.empty.fatal', h('b', 'This page can’t be shown'), h('p', error.message)));
    document.body.dataset.failed = error.message;
    throw error;
  }
}

start();
