// Small charts: a sparkline, and the memory of a device over time with marks.

import { el, keyed, setAttribute, setText, svg } from './dom.js';
import { SPAN_MS } from './history.js';
import { withTip } from './tip.js';
import { bytes, exact, seconds } from './units.js';

const SPARK_WIDTH = 96;
const SPARK_HEIGHT = 24;

/** A line of the last values, scaled to the largest. */
export function sparkline(label) {
  const area = svg('path', { class: 'spark-area' });
  const line = svg('path', { class: 'spark-line' });
  const box = `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`;
  const options = { class: 'spark', viewBox: box, preserveAspectRatio: 'none' };
  const node = svg('svg', { ...options, role: 'img', 'aria-label': label }, area, line);
  node.draw = (values, most = Math.max(...values, 0)) => {
    const n = values.length;
    if (n < 2) return;
    const x = (at) => ((at / (n - 1)) * SPARK_WIDTH).toFixed(1);
    const y = (value) => (SPARK_HEIGHT - 1 - (most > 0 ? value / most : 0) * (SPARK_HEIGHT - 3)).toFixed(1);
    const path = values.map((value, at) => `${at === 0 ? 'M' : 'L'}${x(at)} ${y(value ?? 0)}`).join('');
    setAttribute(line, 'd', path);
    setAttribute(area, 'd', `${path}L${SPARK_WIDTH} ${SPARK_HEIGHT}L0 ${SPARK_HEIGHT}Z`);
  };
  return node;
}

const WIDTH = 1000;
const HEIGHT = 100;

/** The words and the sign of each kind of mark. */
const MARKS = {
  growth: ['grew by', '▲'],
  release: ['gave back', '▼'],
  load: ['loaded', '●'],
  unload: ['unloaded', '○'],
};

/** How many marks of a kind and a moment stand apart on the chart. */
const MARK_SLOTS = 80;

/** Memory that a device holds and uses over the last minutes, with what happened. */
export function memoryChart(device) {
  const held = svg('path', { class: 'chart-held' });
  const used = svg('path', { class: 'chart-used' });
  const options = { class: 'chart', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' };
  const plot = svg('svg', { ...options, 'aria-hidden': 'true' }, held, used);
  const marks = el('div', { class: 'marks', role: 'group', 'aria-label': `What happened on ${device}` });
  const top = el('span', { class: 'axis-top' });
  const left = el('span', { class: 'axis-left' });
  const axis = el('div', { class: 'axis' }, left, el('span', {}, 'now'));
  const frame = el('div', { class: 'plot' }, top, plot, marks);
  const node = el('figure', { class: 'memory-chart' }, el('figcaption', {}, 'Held and in use over time'), frame, axis);
  node.draw = (samples, events) => {
    if (samples.length === 0) return;
    const now = samples.at(-1).at;
    const span = Math.min(SPAN_MS, Math.max(60000, now - samples[0].at));
    const shown = samples.filter((sample) => sample.at >= now - span);
    const most = scaleTop(Math.max(...shown.map((sample) => sample.held), 1));
    const x = (at) => WIDTH - ((now - at) / span) * WIDTH;
    const y = (n) => HEIGHT - (n / most) * HEIGHT;
    setAttribute(held, 'd', steps(shown, 'held', x, y));
    setAttribute(used, 'd', steps(shown, 'used', x, y));
    setText(top, bytes(most));
    setText(left, `−${seconds(span / 1000)}`);
    drawMarks(marks, joined(events.filter((event) => event.at >= now - span), span), (at) => x(at) / 10, now);
  };
  return node;
}

/** A round number of bytes not below the largest. */
function scaleTop(most) {
  const unit = 1024 ** Math.floor(Math.log2(most) / 10);
  const rounds = [1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
  return unit * (rounds.find((round) => round * unit >= most * 1.05) ?? 1024);
}

/** An area under steps: memory stays what it is until it changes. */
function steps(samples, field, x, y) {
  let path = `M${x(samples[0].at).toFixed(1)} ${HEIGHT}`;
  let before = null;
  for (const sample of samples) {
    const at = x(sample.at).toFixed(1);
    if (before !== null && sample[field] !== before) path += `L${at} ${y(before).toFixed(1)}`;
    if (sample[field] !== before) path += `L${at} ${y(sample[field]).toFixed(1)}`;
    before = sample[field];
  }
  const end = x(samples.at(-1).at).toFixed(1);
  return `${path}L${end} ${y(before).toFixed(1)}L${end} ${HEIGHT}Z`;
}

/** Marks that would lie on each other, as one. */
function joined(events, span) {
  const slots = new Map();
  for (const event of events) {
    const slot = Math.floor(event.at / (span / MARK_SLOTS));
    const key = `${slot} ${event.kind}`;
    const known = slots.get(key);
    if (known) known.events.push(event);
    else slots.set(key, { key, kind: event.kind, at: event.at, events: [event] });
  }
  return [...slots.values()];
}

function drawMarks(parent, marks, x, now) {
  const make = ({ kind }) => {
    const node = el('button', { type: 'button', class: `mark ${kind}` }, MARKS[kind][1]);
    withTip(node, () => words(node.mark, node.now));
    return node;
  };
  keyed(parent, marks, (mark) => mark.key, make, (node, mark) => {
    Object.assign(node, { mark, now });
    node.style.left = `${x(mark.at).toFixed(2)}%`;
    const { title, lines } = words(mark, now);
    setAttribute(node, 'aria-label', `${title}: ${lines.join('; ')}`);
  });
}

function words({ kind, at, events }, now) {
  const [verb] = MARKS[kind];
  const lines = events.slice(0, 8).map(({ device, bytes: n, id }) => {
    return id === undefined ? `${device} ${verb} ${bytes(n)} (${exact(n)})` : `${id} ${verb}`;
  });
  if (events.length > 8) lines.push(`and ${events.length - 8} more`);
  const names = { growth: 'Growth', release: 'Release', load: 'Load', unload: 'Unload' };
  return { title: names[kind], size: `${seconds((now - at) / 1000)} ago`, lines };
}
