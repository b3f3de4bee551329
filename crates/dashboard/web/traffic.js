// Requests, batches, queues and errors: what moved between looks.

import { sparkline } from './chart.js';
import { el, keyed, setAttribute, setText, show } from './dom.js';
import { Ring } from './history.js';
import { latencyBetween, percentile } from './metrics.js';
import { withTip } from './tip.js';
import { count, micros, percent, rate } from './units.js';

/** How many looks a rate is taken over. */
const WINDOW = 6;

/** How many values a sparkline has. */
const SERIES_MAX = 60;

/** Counters of models and queues over the last looks. */
export class Traffic {
  constructor() {
    this.metrics = new Ring(WINDOW);
    this.queues = new Ring(WINDOW);
    this.series = new Map();
    this.rates = new Map();
  }

  /** Notes a look at the metrics page, as `metrics.read` gives it. */
  addMetrics(at, models) {
    this.metrics.push({ at, models });
    const total = this.total();
    this.push('p50', total.p50 ?? 0);
    this.push('p99', total.p99 ?? 0);
    this.push('errors', total.errorRate);
  }

  /** Notes a look at the scheduler page. */
  addScheduler(at, page) {
    const queues = new Map(page.queues.map((queue) => [queueKey(queue), queue]));
    this.queues.push({ at, queues, lanes: page.lanes });
    this.rates = new Map();
    for (const [key, queue] of queues) {
      const { rows, rate: perSecond } = this.queue(key, queue);
      this.push(`queue ${key}`, rows);
      this.rates.set(queue.model, (this.rates.get(queue.model) ?? 0) + perSecond);
    }
    for (const [name, perSecond] of this.rates) this.push(`model ${name}`, perSecond);
    this.push('requests', [...this.rates.values()].reduce((sum, one) => sum + one, 0));
    this.push('rows', this.batchRows());
    this.push('waiting', page.queues.reduce((sum, queue) => sum + queue.waiting.tasks, 0));
  }

  push(name, value) {
    if (!this.series.has(name)) this.series.set(name, new Ring(SERIES_MAX));
    this.series.get(name).push(value);
  }

  /** The last values of something. */
  of(name) {
    return this.series.get(name)?.items ?? [];
  }

  /**
   * Requests of a model: how many a second, which its queues know at every look, and how long they
   * took and how many failed, which the metrics know.
   */
  model(name) {
    const [first, last] = [this.metrics.items[0], this.metrics.last()];
    const now = last?.models.get(name);
    const asked = this.rates.get(name) ?? 0;
    if (!now) return { rate: asked, p50: null, p99: null, errors: 0, codes: [], latency: [] };
    const before = first.models.get(name);
    const span = (last.at - first.at) / 1000;
    const latency = latencyBetween(now.latency, first === last ? now.latency : before?.latency);
    const codes = [...now.codes].filter(([code]) => code !== 'OK');
    const errors = codes.reduce((sum, [, one]) => sum + one, 0);
    const earlier = [...(before?.codes ?? [])].filter(([code]) => code !== 'OK');
    const failed = errors - earlier.reduce((sum, [, one]) => sum + one, 0);
    const all = [...now.latency].reduce((most, [, one]) => Math.max(most, one), 0);
    return {
      all, errors, codes, latency,
      rate: asked,
      errorRate: span > 0 ? Math.max(0, failed) / span : 0,
      p50: percentile(latency, 0.5),
      p99: percentile(latency, 0.99),
    };
  }

  /** Likewise of all models. */
  total() {
    const latency = new Map();
    const total = { errorRate: 0, errors: 0, all: 0 };
    for (const name of this.metrics.last()?.models.keys() ?? []) {
      const one = this.model(name);
      for (const field of Object.keys(total)) total[field] += one[field] ?? 0;
      for (const [limit, n] of one.latency) latency.set(limit, (latency.get(limit) ?? 0) + n);
    }
    const counts = [...latency].sort(([a], [b]) => a - b);
    return { ...total, p50: percentile(counts, 0.5), p99: percentile(counts, 0.99) };
  }

  /** Answers that were failures, by code: how many, and of which models. */
  errors() {
    const codes = new Map();
    for (const [name, { codes: counts }] of this.metrics.last()?.models ?? []) {
      for (const [code, n] of counts) {
        if (code === 'OK') continue;
        const known = codes.get(code) ?? { code, n: 0, models: [] };
        known.n += n;
        known.models.push([name, n]);
        codes.set(code, known);
      }
    }
    return [...codes.values()].sort((a, b) => b.n - a.n);
  }

  /** What a queue did in the last looks. */
  queue(key, queue) {
    const first = this.queues.items[0];
    const last = this.queues.last();
    const before = first === last ? undefined : first.queues.get(key);
    const span = (last.at - first.at) / 1000;
    const since = (get) => (before ? Math.max(0, get(queue) - get(before)) : 0);
    const batches = since((one) => one.batches.run);
    const refused = (one) => one.tasks.refused + one.tasks.expired;
    return {
      rate: span > 0 ? since((one) => one.tasks.asked) / span : 0,
      rows: batches > 0 ? since((one) => one.rows.run) / batches : 0,
      padding: since((one) => one.rows.padding),
      waited: spread(queue.queue_micros, before?.queue_micros),
      ran: spread(queue.compute_micros, before?.compute_micros),
      refused: refused(queue),
    };
  }

  /** Rows of a batch on average, over all queues. */
  batchRows() {
    const [first, last] = [this.queues.items[0], this.queues.last()];
    let [rows, batches] = [0, 0];
    for (const [key, queue] of last?.queues ?? []) {
      const before = first.queues.get(key);
      rows += queue.rows.run - (before?.rows.run ?? queue.rows.run);
      batches += queue.batches.run - (before?.batches.run ?? queue.batches.run);
    }
    return batches > 0 ? rows / batches : 0;
  }

  /** How busy each lane was. */
  lanes() {
    const [first, last] = [this.queues.items[0], this.queues.last()];
    const span = last ? (last.at - first.at) / 1000 : 0;
    return (last?.lanes ?? []).map((lane, at) => {
      const before = first.lanes[at];
      const busy = before && span > 0 ? (lane.busy_seconds - before.busy_seconds) / span : 0;
      return { device: lane.device, lane: lane.lane, busy: Math.min(1, Math.max(0, busy)) };
    });
  }
}

function queueKey(queue) {
  return JSON.stringify([queue.model, queue.version, queue.signature, queue.device, queue.is_batched]);
}

/** Half of the times and nearly all of them, between two looks. */
function spread(now, before) {
  const counts = Object.entries(now?.up_to ?? {}).map(([limit, n]) => {
    return [Number(limit), Math.max(0, n - (before?.up_to?.[limit] ?? 0))];
  });
  counts.sort(([a], [b]) => a - b);
  return { p50: percentile(counts, 0.5), p99: percentile(counts, 0.99) };
}

/** A tile with a number that moves. */
function tile(name, hint) {
  const value = el('strong', { class: 'tile-value' });
  const unit = el('span', { class: 'tile-unit' });
  const spark = sparkline(`${name}, the last minutes`);
  const node = el('div', { class: 'tile', title: hint }, el('span', { class: 'tile-name' }, name), el('p', {}, value, unit), spark);
  node.set = (text, more, values) => {
    setText(value, text);
    setText(unit, more);
    spark.draw(values);
  };
  return node;
}

/** The tiles at the top of the section. */
export function makeTiles(parent) {
  const tiles = {
    requests: tile('Requests', 'Calls that ran a model, over REST and gRPC, in the last seconds'),
    latency: tile('Latency', 'From the first byte of a request to its answer: half of them are faster than p50, 99 of 100 than p99'),
    rows: tile('Batch size', 'Rows of a batch on average, in the last seconds'),
    waiting: tile('Waiting', 'Requests that wait in queues'),
    errors: tile('Errors', 'Answers that were failures'),
  };
  parent.append(...Object.values(tiles));
  return (traffic) => {
    const total = traffic.total();
    tiles.requests.set(rate(traffic.of('requests').at(-1) ?? 0), ` /s · ${count(total.all)} in all`, traffic.of('requests'));
    tiles.latency.set(micros(total.p50), ` p50 · ${micros(total.p99)} p99`, traffic.of('p99'));
    const rows = traffic.of('rows').at(-1) ?? 0;
    tiles.rows.set(rows > 0 ? rows.toFixed(1) : '–', ' rows', traffic.of('rows'));
    tiles.waiting.set(count(traffic.of('waiting').at(-1) ?? 0), ' in queues', traffic.of('waiting'));
    tiles.errors.set(count(total.errors), ` in all · ${rate(total.errorRate)} /s`, traffic.of('errors'));
    tiles.errors.classList.toggle('bad', total.errors > 0);
  };
}

/** Draws the queues that did something or have somebody waiting; all if `isAll`. */
export function drawQueues(section, traffic, page, isAll) {
  const most = Math.max(...page.queues.map((queue) => queue.waiting.tasks), 1);
  const rows = page.queues.map((queue) => {
    const key = queueKey(queue);
    return { key, queue, ...traffic.queue(key, queue) };
  });
  const isBusy = ({ queue }) => queue.tasks.asked > 0 || queue.waiting.tasks > 0;
  const shown = isAll ? rows : rows.filter(isBusy);
  shown.sort((a, b) => b.queue.waiting.tasks - a.queue.waiting.tasks || b.rate - a.rate || (a.key < b.key ? -1 : 1));
  keyed(section.body, shown, (row) => row.key, makeQueue, (node, row) => node.draw(row, traffic, most));
  show(section.empty, shown.length === 0);
  show(section.table, shown.length > 0);
  const idle = rows.length - shown.length;
  setText(section.note, idle > 0 && !isAll ? `${count(idle)} more without requests` : '');
}

function makeQueue({ queue }) {
  const names = ['name', 'device', 'waiting', 'rate', 'rows', 'waited', 'ran', 'refused'];
  const labels = ['Queue', 'Device', 'Waiting', 'Requests/s', 'Rows of a batch', 'Waited p50 · p99', 'Ran p50 · p99', 'Refused'];
  const cells = Object.fromEntries(names.map((name, at) => [name, el(name === 'name' ? 'th' : 'td', { dataset: { label: labels[at] }, class: name === 'name' || name === 'device' ? '' : 'number' })]));
  const signature = el('span', { class: 'muted' }, ` ${queue.signature}`);
  cells.name.setAttribute('scope', 'row');
  cells.name.append(el('span', {}, `${queue.model}:${queue.version}`), signature);
  const bar = el('i', { class: 'mini-bar' });
  const waiting = el('span');
  cells.waiting.append(waiting, el('span', { class: 'mini' }, bar));
  const spark = sparkline('Rows of a batch, the last minute');
  const rows = el('span', { tabindex: '0' });
  cells.rows.append(spark, rows);
  const node = el('tr', {}, ...Object.values(cells));
  withTip(rows, () => batchWords(node.queue));
  node.draw = ({ key, queue: now, rate: perSecond, rows: mean, waited, ran, refused }, traffic, most) => {
    node.queue = now;
    setText(cells.device, now.device);
    setText(waiting, count(now.waiting.tasks));
    bar.style.width = `${(now.waiting.tasks / most) * 100}%`;
    setText(cells.rate, rate(perSecond));
    setText(rows, mean > 0 ? mean.toFixed(1) : '–');
    spark.draw(traffic.of(`queue ${key}`));
    setText(cells.waited, `${micros(waited.p50)} · ${micros(waited.p99)}`);
    setText(cells.ran, `${micros(ran.p50)} · ${micros(ran.p99)}`);
    setText(cells.refused, count(refused));
    setAttribute(cells.refused, 'class', refused > 0 ? 'number bad' : 'number');
  };
  return node;
}

function batchWords(queue) {
  const sizes = Object.entries(queue.rows.per_batch.up_to ?? {}).map(([limit, n]) => `up to ${limit} rows: ${count(n)}`);
  const lines = [sizes.length > 0 ? `Batches of ${sizes.join(', ')}.` : 'No batch has run yet.'];
  if (queue.why_not_batched) lines.push(`Not batched: ${queue.why_not_batched}.`);
  else lines.push(`At most ${queue.max_batch_size} rows; a batch waits ${micros(queue.batch_timeout_micros)} for more.`);
  if (queue.rows.padding > 0) lines.push(`Padding: ${percent(queue.rows.padding_share)} of all rows.`);
  return { title: `${queue.model}:${queue.version} ${queue.signature}`, size: queue.device, lines };
}

/** Draws the failures by code. */
export function drawErrors(section, traffic) {
  const errors = traffic.errors();
  const most = Math.max(...errors.map((error) => error.n), 1);
  const make = ({ code }) => {
    const n = el('td', { class: 'number', dataset: { label: 'Count' } });
    const bar = el('i', { class: 'mini-bar bad' });
    const models = el('td', { dataset: { label: 'Models' } });
    const node = el('tr', {}, el('th', { scope: 'row' }, code), n, el('td', { class: 'wide' }, el('span', { class: 'mini' }, bar)), models);
    return Object.assign(node, { n, bar, models });
  };
  keyed(section.body, errors, (error) => error.code, make, (node, { n, models }) => {
    setText(node.n, count(n));
    node.bar.style.width = `${(n / most) * 100}%`;
    const named = models.sort(([, a], [, b]) => b - a).slice(0, 4);
    const more = models.length > 4 ? ` and ${models.length - 4} more` : '';
    setText(node.models, named.map(([name, one]) => `${name || '(no model)'} ${count(one)}`).join(', ') + more);
  });
  show(section.empty, errors.length === 0);
  show(section.table, errors.length > 0);
}
