// config.js: the options that were in effect and where each came from; what the page was made from; notices.
import {bytesText, countText, h, replace, timeText} from './util.js';

export class ConfigView {
  constructor(app) {
    this.app = app;
    this.id = 'config';
    this.title = 'Options';
    this.element = h('section.view', {id: 'view-config'});
  }

  show() {
    const {page} = this.app;
    replace(this.element, page.documents.map((document, i) => this.options(document, page.names[i])), this.log(), this.notices());
  }

  options(document, name) {
    const pool = document.pool ?? {};
    const when = pool.realtime_us ? new Date(pool.realtime_us / 1000).toISOString().replace('T', ' ').replace('Z', ' UTC') : '–';
    const config = Array.isArray(document.config) ? document.config : [];
    return [h('div.card', h('h2', name), h('dl.facts', ...[['pool', pool.name], ['driver', pool.driver], ['device', `${pool.device}: ${pool.device_name}`], ['process', pool.process],
      ['taken', pool.trigger ? `${when} (${pool.trigger})` : when], ['granule', bytesText(pool.granule)], ['format', `${document.schema.name} ${document.schema.version}`]].map(([key, value]) => [h('dt', key), h('dd', String(value ?? '–'))]))),
    this.streams(document), this.calls(document),
    h('div.card', h('div.head', h('h2', 'Effective options'), h('span.quiet', 'as VMP_CONF takes them; those that were set come first')),
      h('table.data', h('thead', h('tr', h('th', 'key'), h('th', 'value'), h('th', 'from'))),
        h('tbody', [...config].sort((a, b) => (a.source === 'default') - (b.source === 'default')).map((one) =>
          h('tr', {class: one.source === 'default' ? 'quiet' : ''}, h('td.mono', String(one.key)), h('td.mono', String(one.value)), h('td', String(one.source)))))))];
  }

  streams(document) {
    const streams = Array.isArray(document.streams) ? document.streams : [];
    return streams.length > 0 && h('div.card', h('div.head', h('h2', 'Streams'), h('span.quiet', 'pending: bytes of idle chunks that a stream may still touch')),
      h('table.data', h('thead', h('tr', h('th', 'index'), h('th', 'handle'), h('th.number', 'thread'), h('th.number', 'completed up to'), h('th.number', 'pending'))),
        h('tbody', streams.map((one) => h('tr', h('td', String(one.index)), h('td.mono', String(one.handle)), h('td.number', one.thread ? String(one.thread) : '–'), h('td.number', countText(one.completed)),
          h('td.number', bytesText(one.pending)))))));
  }

  calls(document) {
    const calls = Object.entries(document.driver_calls ?? {});
    return calls.length > 0 && h('div.card', h('h2', 'Driver calls so far'), h('div.stats', calls.map(([name, count]) => h('div', h('span', name), h('b', countText(count))))));
  }

  log() {
    const {history} = this.app.page;
    if (!history) return null;
    return h('div.card', h('h2', 'Event log'), h('dl.facts', ...[['events', countText(history.n - history.initial)], ['time', timeText(history.time[history.n - 1] - history.time[history.initial])],
      ['objects before its start', countText(history.initial)], ['lost events', countText(history.head.dropped)], ['streams', countText(history.head.streams.length)]].map(([k, v]) => [h('dt', k), h('dd', v)])));
  }

  notices() {
    const text = document.getElementById('notices')?.textContent ?? '';
    return h('details.card', h('summary', h('h2', 'Notices of the libraries in this page')), h('pre', text.trim()));
  }
}
