// Numbers as people read them.

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const GROUPED = new Intl.NumberFormat('en-US');

/** Bytes with three significant digits or so: `4.0 MiB`. */
export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  let unit = 0;
  let value = Math.abs(n);
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 1000 ? 0 : 1;
  return `${n < 0 ? '−' : ''}${value.toFixed(digits)}\u202f${BYTE_UNITS[unit]}`;
}

/** Bytes to the last one: `4,194,304 bytes`. */
export function exact(n) {
  return `${GROUPED.format(n)} bytes`;
}

/** A whole number with separators. */
export function count(n) {
  return GROUPED.format(n);
}

/** A number a second. */
export function rate(n) {
  if (!Number.isFinite(n)) return '–';
  if (n === 0) return '0';
  if (n < 0.1) return n.toFixed(2);
  return n < 100 ? n.toFixed(1) : GROUPED.format(Math.round(n));
}

/** A time given in microseconds. */
export function micros(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return '–';
  if (n < 1000) return `${Math.round(n)}\u202fµs`;
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)}\u202fms`;
  return `${(n / 1e6).toFixed(1)}\u202fs`;
}

/** A share of one, as per cent. */
export function percent(share) {
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)}\u202f%`;
}

/** A time span in seconds. */
export function seconds(n) {
  if (n < 60) return `${Math.round(n)} s`;
  const minutes = Math.floor(n / 60);
  const rest = Math.round(n % 60);
  return rest === 0 ? `${minutes} min` : `${minutes} min ${rest} s`;
}

/** One of something, or many. */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A size that a config file takes, not larger than `n`: `512MiB`. */
export function configSize(n) {
  const mib = Math.max(1, Math.floor(n / 2 ** 20));
  return mib % 1024 === 0 ? `${mib / 1024}GiB` : `${mib}MiB`;
}
