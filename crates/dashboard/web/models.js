// Models: versions, states, engine, device, memory, requests.

import { sparkline } from './chart.js';
import { command, el, keyed, setAttribute, setText, show } from './dom.js';
import { versionOf } from './explain.js';
import { categoryName } from './pieces.js';
import { bytes, count, exact, micros, percent, rate, seconds } from './units.js';

/** Every version of every model, with what the pages say of it. */
export function versions(list, memory) {
  const holdings = holdingsOf(memory);
  const workers = workersOf(memory);
  return list.models.flatMap((model) => {
    const all = [...model.versions].sort((a, b) => Number(b.version) - Number(a.version));
    const rows = all.map((version, at) => {
      const id = `${model.name}:${version.version}`;
      const held = holdings.get(id) ?? [];
      const worker = workers.get(id);
      const labels = Object.entries(model.labels ?? {}).filter(([, n]) => n === version.version);
      return {
        id, name: model.name, version: version.version, isFirst: at === 0,
        state: version.state, error: version.status?.error_message ?? '',
        labels: labels.map(([label]) => label),
        holdings: held, bytes: held.reduce((sum, one) => sum + one.bytes, 0),
        engine: ENGINES[version.engine] ?? engineOf(held, worker), worker,
        progress: progressOf(version, worker),
      };
    });
    if (rows.length > 0) return rows;
    const empty = { version: '–', state: 'START', error: '', labels: [], holdings: [], bytes: 0 };
    return [{ ...empty, id: model.name, name: model.name, isFirst: true, engine: '', progress: null }];
  });
}

/** What each version holds on which device. */
function holdingsOf(memory) {
  const holdings = new Map();
  for (const device of memory?.devices ?? []) {
    for (const model of device.models) {
      const id = `${model.name}:${model.version}`;
      const one = { ...model, device: device.name, engine: device.engine };
      holdings.set(id, [...(holdings.get(id) ?? []), one]);
    }
  }
  return holdings;
}

/** The versions in TensorFlow's workers. */
function workersOf(memory) {
  const versions = new Map();
  for (const worker of memory?.workers ?? []) {
    for (const model of worker.models ?? []) {
      versions.set(`${model.name}:${model.version}`, { ...model, worker: worker.name });
    }
  }
  return versions;
}

const ENGINES = { native: 'native', tensorflow: 'TensorFlow' };

function engineOf(holdings, worker) {
  if (worker || holdings.some((one) => one.engine === 'tensorflow')) return 'TensorFlow';
  return holdings.length > 0 ? 'native' : '';
}

/** How far a load is: a share from 0 to 1 if that is known, and words. */
function progressOf(version, worker) {
  const { progress } = version;
  if (progress) {
    const { done_bytes: done, total_bytes: total, phase } = progress;
    const words = [phase, total ? `${bytes(done)} of ${bytes(total)}` : null];
    return { share: total > 0 ? done / total : null, text: words.filter(Boolean).join(' ') };
  }
  if (worker?.loading_seconds === undefined) return null;
  const { loading_seconds: took, loading_grown_bytes: grown, weights_bytes: weights } = worker;
  const share = weights > 0 ? Math.min(1, grown / weights) : null;
  return { share, text: `${bytes(grown)} read, ${seconds(took)}` };
}

const ORDERS = {
  busy: (a, b) => b.rate - a.rate || b.bytes - a.bytes,
  memory: (a, b) => b.bytes - a.bytes,
  name: () => 0,
};

/** Draws the table of models. */
export function drawModels(section, rows, { traffic, about, order, filter }) {
  const counted = new Map();
  const named = (name) => {
    if (!counted.has(name)) counted.set(name, traffic.model(name));
    return counted.get(name);
  };
  const wanted = filter.trim().toLowerCase();
  const shown = rows.filter((row) => row.name.toLowerCase().includes(wanted));
  const sizes = new Map();
  for (const row of rows) sizes.set(row.name, (sizes.get(row.name) ?? 0) + row.bytes);
  // Versions of a model stay together.
  const key = (row) => ({ rate: named(row.name).rate, bytes: sizes.get(row.name) });
  const compare = (a, b) => ORDERS[order](key(a), key(b)) || byName(a, b);
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  const all = [...shown].sort(compare);
  keyed(section.table, [null, ...all], (row) => row?.id ?? 'head', (row) => (row ? makeVersion(row) : section.head), (node, row, at) => {
    if (row) node.draw(row, { requests: named(row.name), series: traffic.of(`model ${row.name}`), most, about, at });
  });
  show(section.empty, shown.length === 0);
  setText(section.empty, rows.length === 0 ? 'No models are served.' : 'No model has such a name.');
}

function byName(a, b) {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return Number(b.version) - Number(a.version);
}

const COLUMNS = ['Model', 'Version', 'State', 'Engine', 'Device', 'Memory', 'Requests/s', 'p50 · p99', 'Errors'];

/** The head of the table. */
export function modelsHead() {
  const cells = COLUMNS.map((name, at) => el('th', { scope: 'col', class: at > 4 ? 'number' : '' }, name));
  return el('thead', {}, el('tr', {}, ...cells));
}

function makeVersion(first) {
  const id = `about-${Math.random().toString(36).slice(2)}`;
  const toggle = el('button', { type: 'button', class: 'disclose', 'aria-expanded': 'false', 'aria-controls': id }, first.name);
  const cells = COLUMNS.map((name, at) => el(at === 0 ? 'th' : 'td', { class: at > 4 ? 'number' : '', dataset: { label: name } }));
  cells[0].setAttribute('scope', 'row');
  cells[0].append(toggle);
  const version = el('span');
  const labels = el('span', { class: 'labels' });
  cells[1].append(version, labels);
  const state = el('span', { class: 'state' });
  const progress = el('progress', { max: '1' });
  const progressText = el('span', { class: 'muted' });
  cells[2].append(state, progress, progressText);
  const bar = el('i', { class: 'mini-bar' });
  const size = el('span');
  cells[5].append(size, el('span', { class: 'mini' }, bar));
  const spark = sparkline('Requests a second, the last minutes');
  const perSecond = el('span');
  cells[6].append(spark, perSecond);
  const more = details();
  const detail = el('tr', { class: 'detail', id, hidden: true }, el('td', { colspan: String(COLUMNS.length) }, more.node));
  const node = el('tbody', { dataset: { model: first.id } }, el('tr', { class: 'row' }, ...cells), detail);
  toggle.addEventListener('click', () => {
    detail.hidden = !detail.hidden;
    toggle.setAttribute('aria-expanded', String(!detail.hidden));
    node.redraw();
  });
  node.draw = (row, context) => {
    node.redraw = () => node.draw(row, context);
    const { requests, series, most, about } = context;
    setText(version, row.version);
    setText(labels, row.labels.join(' '));
    drawState(row, { state, progress, progressText });
    setText(cells[3], row.engine || '–');
    setText(cells[4], row.holdings.filter((one) => one.bytes > 0).map((one) => one.device).join(', ') || '–');
    setText(size, row.bytes > 0 ? bytes(row.bytes) : '–');
    setAttribute(size, 'title', exact(row.bytes));
    setAttribute(cells[5], 'data-bytes', row.bytes);
    bar.style.width = `${(row.bytes / most) * 100}%`;
    // Requests are counted by model: its newest version shows them.
    show(spark, row.isFirst);
    if (row.isFirst) {
      spark.draw(series);
      setText(perSecond, rate(requests.rate));
      setText(cells[7], `${micros(requests.p50)} · ${micros(requests.p99)}`);
      setText(cells[8], count(requests.errors));
      setAttribute(cells[8], 'class', requests.errors > 0 ? 'number bad' : 'number');
    }
    node.classList.toggle('older', !row.isFirst);
    if (!detail.hidden) more.draw(row, about);
  };
  return node;
}

const STATES = { START: 'Waiting', LOADING: 'Loading', AVAILABLE: 'Available', UNLOADING: 'Unloading', END: 'Unloaded' };

function drawState(row, { state, progress, progressText }) {
  const hasFailed = row.error !== '' && row.state !== 'AVAILABLE';
  setText(state, hasFailed ? 'Failed' : (STATES[row.state] ?? row.state));
  setAttribute(state, 'data-state', hasFailed ? 'FAILED' : row.state);
  const { share = null, text = '' } = row.progress ?? {};
  show(progress, row.state === 'LOADING');
  if (share === null) progress.removeAttribute('value');
  else progress.value = share;
  setText(progressText, row.state === 'LOADING' ? text : '');
}

/** What is known of a version beyond its line. */
function details() {
  const error = el('p', { class: 'bad' });
  const why = el('p', { class: 'why-text' });
  const lines = el('div');
  const holdings = el('div', { class: 'holdings' });
  const node = el('div', { class: 'detail-box' }, error, why, lines, holdings);
  const draw = (row, about) => {
    setText(error, row.error);
    show(error, row.error !== '');
    const { why: text, lines: commands } = versionOf(row, about);
    setText(why, text);
    keyed(lines, commands, ({ does }) => does, makeLine, (one, { line }) => one.line.setLine(line));
    keyed(holdings, row.holdings, (one) => one.device, makeHolding, (one, held) => one.draw(held));
  };
  return { node, draw };
}

function makeLine({ does }) {
  const line = command();
  const node = el('p', { class: 'why' }, el('span', { class: 'why-change' }, `${does}: `, line));
  return Object.assign(node, { line });
}

function makeHolding({ device }) {
  const list = el('ul', { class: 'legend' });
  const tensors = el('table', { class: 'tensors' });
  const caption = el('caption', {}, 'Largest tensors');
  const title = el('h4', {}, device);
  const node = el('div', {}, title, list, tensors);
  node.draw = (held) => {
    const share = held.limit_bytes > 0 && held.limit_bytes < 2 ** 63 ? ` of its limit of ${bytes(held.limit_bytes)} (${percent(held.bytes / held.limit_bytes)})` : '';
    setText(title, `${device}: ${bytes(held.bytes)}${share}`);
    keyed(list, Object.entries(held.categories ?? {}), ([name]) => name, ([name]) => {
      return el('li', {}, el('i', { class: `swatch of-${name}` }), el('span', {}, categoryName(name)), el('span', { class: 'legend-size' }));
    }, (item, [, n]) => {
      setText(item.lastChild, bytes(n));
      setAttribute(item.lastChild, 'title', exact(n));
    });
    const rows = held.largest_tensors ?? [];
    show(tensors, rows.length > 0);
    keyed(tensors, [null, ...rows], (row) => (row ? `${row.category} ${row.name}` : 'caption'), (row) => {
      if (!row) return caption;
      const shared = row.sharers ? `shared by ${row.sharers.join(', ')}` : '';
      return el('tr', {}, el('td', {}, row.name), el('td', {}, categoryName(row.category)), el('td', { class: 'number', title: exact(row.bytes) }, bytes(row.bytes)), el('td', { class: 'muted' }, shared));
    }, () => {});
  };
  return node;
}
