// Asks the server's pages again and again, while somebody looks.

const EVERY_MS = 1000;
const TIMEOUT_MS = 8000;
const BACKOFF_MAX_MS = 15000;
const KEY = 'tensord-api-key';

/** A page of more characters is asked for less often. */
const LARGE_PAGE = 2 ** 20;
const LARGE_EVERY = 10;

/** So many looks go by before that, so that there is something to compare. */
const FIRST_LOOKS = 4;

/** The pages, and at which of the looks each is asked for. */
const PAGES = [
  { name: 'memory', path: 'v1/memory', every: 1 },
  { name: 'scheduler', path: 'v1/scheduler', every: 1 },
  { name: 'models', path: 'v1/models:list', every: 1 },
  { name: 'metrics', path: 'metrics', every: 2, isText: true, sparingly: true },
  { name: 'devices', path: 'v1/devices', every: 5 },
  { name: 'about', path: 'ui/server.json', every: 60 },
];

/** Headers of a call: the key, if the person gave one. */
export function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Keeps the key until the tab is closed; without one, forgets it. */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** True if the person gave a key. */
export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export class Poll {
  /**
   * `update(pages, isFresh)` is called after each look: for each page `{ value, error, at }`.
   * `gone(since, wait)` is called when nothing answered, `needsKey(message)` at 401.
   */
  constructor({ update, gone, needsKey }) {
    Object.assign(this, { update, gone, needsKey });
    this.pages = Object.fromEntries(PAGES.map(({ name }) => [name, {}]));
    this.n = 0;
    this.failures = 0;
    this.isPaused = false;
    this.timer = null;
    this.goneSince = null;
    document.addEventListener('visibilitychange', () => this.wake());
  }

  /** Looks now, and from then on. */
  wake() {
    clearTimeout(this.timer);
    if (!this.isStopped()) this.look();
  }

  /** Stops, or goes on. */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.wake();
  }

  /** Looks at every page anew, with another key. */
  restart() {
    this.n = 0;
    this.wake();
  }

  isStopped() {
    return this.isPaused || document.hidden;
  }

  async look() {
    if (this.isLooking) {
      this.isStale = true;
      return;
    }
    this.isLooking = true;
    const due = PAGES.filter(({ every, name, sparingly }) => {
      const { value, error } = this.pages[name];
      const isLarge = sparingly && this.n > FIRST_LOOKS && value?.length > LARGE_PAGE;
      return this.n % (isLarge ? LARGE_EVERY : every) === 0 || (value === undefined && error === undefined);
    });
    this.n += 1;
    // The metrics come last: a large answer would be seen in the books of memory meanwhile.
    const [late, early] = [due.filter((page) => page.sparingly), due.filter((page) => !page.sparingly)];
    const results = await Promise.all(early.map((page) => this.ask(page)));
    results.push(...(await Promise.all(late.map((page) => this.ask(page)))));
    this.isLooking = false;
    if (this.isStale) {
      this.isStale = false;
      this.wake();
      return;
    }
    this.settle(results);
    clearTimeout(this.timer);
    if (!this.isStopped()) {
      const wait = Math.min(EVERY_MS * 2 ** this.failures, BACKOFF_MAX_MS);
      this.timer = setTimeout(() => this.look(), wait);
    }
  }

  settle(results) {
    if (results.every((result) => result === 'gone')) {
      this.goneSince ??= Date.now();
      this.failures += 1;
      const wait = Math.min(EVERY_MS * 2 ** this.failures, BACKOFF_MAX_MS);
      this.gone(this.goneSince, wait);
      return;
    }
    this.failures = 0;
    this.goneSince = null;
    if (results.includes('key')) this.needsKey(this.refusal);
    else this.update(this.pages);
  }

  /** Asks for a page: `ok`, `key` if a key is wanted, `gone` if there was no answer. */
  async ask({ name, path, isText }) {
    const page = this.pages[name];
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const answer = await fetch(path, { headers: headers(), signal, cache: 'no-store' });
      if (answer.ok) {
        const value = isText ? await answer.text() : await answer.json();
        this.pages[name] = { value, at: Date.now() };
        return 'ok';
      }
      const message = await refusal(answer);
      this.pages[name] = { ...page, error: message };
      if (answer.status !== 401) return 'ok';
      this.refusal = message;
      return 'key';
    } catch (error) {
      this.pages[name] = { ...page, error: String(error) };
      return 'gone';
    }
  }
}

/** The message of an answer that is none. */
async function refusal(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}
