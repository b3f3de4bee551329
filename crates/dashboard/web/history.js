// What was, for the last minutes: kept in the browser, bounded.

/** How many samples are kept: ten minutes at one a second. */
const SAMPLES_MAX = 600;

/** How many marks are kept. */
const MARKS_MAX = 300;

/** Changes of fewer bytes have no mark. */
const MARK_BYTES_MIN = 64 * 1024;

/** How far back charts go, in milliseconds. */
export const SPAN_MS = 10 * 60 * 1000;

/** A list that forgets its oldest items. */
export class Ring {
  constructor(max) {
    this.max = max;
    this.items = [];
  }

  push(item) {
    this.items.push(item);
    if (this.items.length > this.max) this.items.splice(0, this.items.length - this.max);
  }

  last() {
    return this.items.at(-1);
  }
}

/** Memory of each device over time, and what happened meanwhile. */
export class History {
  constructor() {
    this.samples = new Map();
    this.marks = new Ring(MARKS_MAX);
    this.versions = null;
  }

  /** Notes what a look at the memory page and the list of models saw. */
  add(at, memory, models) {
    const homes = new Map();
    for (const device of memory?.devices ?? []) {
      const { name } = device;
      if (!this.samples.has(name)) this.samples.set(name, new Ring(SAMPLES_MAX));
      const ring = this.samples.get(name);
      this.markChanges(at, device, ring.last());
      ring.push({ at, held: device.reserved_bytes, used: device.in_use_bytes });
      for (const { name: model, version } of device.models) {
        const id = `${model}:${version}`;
        homes.set(id, [...(homes.get(id) ?? []), name]);
      }
    }
    if (models) this.markVersions(at, models, homes);
  }

  /** Growth and release between two looks; requests of the moment come and go without a mark. */
  markChanges(at, { name, reserved_bytes: held }, before) {
    const change = before ? held - before.held : 0;
    if (Math.abs(change) < MARK_BYTES_MIN) return;
    const kind = change > 0 ? 'growth' : 'release';
    this.marks.push({ at, device: name, kind, bytes: Math.abs(change) });
  }

  /** Versions that came or went between two looks. */
  markVersions(at, { models }, homes) {
    const now = new Map();
    for (const { name, versions } of models) {
      for (const { version, state } of versions) {
        if (state === 'AVAILABLE') {
          const id = `${name}:${version}`;
          now.set(id, homes.get(id) ?? this.versions?.get(id) ?? []);
        }
      }
    }
    if (this.versions) {
      for (const [id, devices] of now) {
        if (!this.versions.has(id)) this.markVersion(at, 'load', id, devices);
      }
      for (const [id, devices] of this.versions) {
        if (!now.has(id)) this.markVersion(at, 'unload', id, devices);
      }
    }
    this.versions = now;
  }

  markVersion(at, kind, id, devices) {
    for (const device of devices.length > 0 ? devices : ['']) {
      this.marks.push({ at, device, kind, id });
    }
  }

  /** The samples of a device. */
  of(device) {
    return this.samples.get(device)?.items ?? [];
  }

  /** The marks of a device. */
  marksOf(device) {
    return this.marks.items.filter((mark) => mark.device === device || mark.device === '');
  }
}
