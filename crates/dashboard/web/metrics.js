// Requests, latencies and errors of each model, read from the metrics page. The names of the
// metrics stand here and nowhere else.

const REQUEST_COUNT = ':tensorflow:serving:request_count{';
const LATENCY_BUCKET = ':tensorflow:serving:request_latency_bucket{';

/** The calls that run a model; others only look at it. */
const RUNS = /predict|classify|regress|multiinference|multi_inference/i;

const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPE = /\\(.)/g;

/**
 * The counters of each model by name: `codes` (a count by status) and `latency` (a cumulative count
 * by upper limit, in microseconds; the last limit is infinite).
 */
export function read(text) {
  const models = new Map();
  const of = (name) => {
    if (!models.has(name)) models.set(name, { codes: new Map(), latency: new Map() });
    return models.get(name);
  };
  let start = 0;
  while (start < text.length) {
    let end = text.indexOf('\n', start);
    if (end < 0) end = text.length;
    if (text.startsWith(REQUEST_COUNT, start)) {
      const { labels, value } = point(text.slice(start, end));
      add(of(labels.model_name ?? '').codes, labels.status ?? 'UNKNOWN', value);
    } else if (text.startsWith(LATENCY_BUCKET, start)) {
      const { labels, value } = point(text.slice(start, end));
      if (RUNS.test(labels.API ?? '')) {
        const limit = labels.le === '+Inf' ? Infinity : Number(labels.le);
        add(of(labels.model_name ?? '').latency, limit, value);
      }
    }
    start = end + 1;
  }
  return models;
}

function add(map, key, value) {
  map.set(key, (map.get(key) ?? 0) + value);
}

/** The labels and the value of a line. */
function point(line) {
  const labels = {};
  for (const [, name, value] of line.matchAll(LABEL)) {
    labels[name] = value.replace(ESCAPE, (_, c) => (c === 'n' ? '\n' : c));
  }
  return { labels, value: Number(line.slice(line.lastIndexOf(' ') + 1)) };
}

/** The count of each limit alone, of counts that are cumulative. */
function apart(cumulative) {
  const limits = [...cumulative.keys()].sort((a, b) => a - b);
  let before = 0;
  return limits.map((limit) => {
    const n = cumulative.get(limit) - before;
    before = cumulative.get(limit);
    return [limit, n];
  });
}

/** The latencies that came between two looks, as `[limit, count]`. */
export function latencyBetween(now, before) {
  const earlier = new Map(before ? apart(before) : []);
  return apart(now).map(([limit, n]) => [limit, Math.max(0, n - (earlier.get(limit) ?? 0))]);
}

/** The value below which a share of the counted values lie; `null` without any. */
export function percentile(counts, share) {
  const total = counts.reduce((sum, [, n]) => sum + n, 0);
  if (total === 0) return null;
  let left = share * total;
  let lower = 0;
  for (const [limit, n] of counts) {
    if (n > 0 && left <= n) {
      return Number.isFinite(limit) ? lower + (limit - lower) * (left / n) : lower;
    }
    left -= n;
    if (Number.isFinite(limit)) lower = limit;
  }
  return lower;
}
