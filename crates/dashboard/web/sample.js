// A request body made from a signature.

/** The most elements that a sample has: more would only slow the text field down. */
const ELEMENTS_MAX = 200000;

/** The most characters of a list that stands on one line. */
const LINE_MAX = 76;

const INTEGERS = /^DT_(U?INT\d+|QU?INT\d+)$/;

const FLOATS = /^DT_(FLOAT|DOUBLE|HALF|BFLOAT16)$/;

/** A float that is written as one: JavaScript would write `1`. */
const ONE = { literal: '1.0' };

function element(dtype) {
  if (dtype === 'DT_STRING') return 'a good example';
  if (dtype === 'DT_BOOL') return true;
  if (INTEGERS.test(dtype)) return 1;
  return FLOATS.test(dtype) ? ONE : null;
}

/** The sizes of an input; unknown ones are 1, an unknown rank is none. */
function sizes(input) {
  const shape = input.tensor_shape ?? {};
  if (shape.unknown_rank) return [];
  return (shape.dim ?? []).map(({ size }) => (Number(size) < 0 ? 1 : Number(size)));
}

function nested(value, dims) {
  return dims.reduceRight((inner, size) => Array(size).fill(inner), value);
}

/** True if a signature takes examples instead of tensors. */
function takesExamples(signature) {
  return /\/(classify|regress)$/.test(signature.method_name ?? '');
}

/** The verb of a signature's REST call. */
export function verb(signature) {
  const found = /\/(classify|regress)$/.exec(signature.method_name ?? '');
  return found ? found[1] : 'predict';
}

/**
 * The body of a call that the signature accepts, as text, or why there is none:
 * `{ body }` or `{ problem }`.
 */
export function sample(name, signature) {
  const named = name === 'serving_default' ? {} : { signature_name: name };
  if (takesExamples(signature)) {
    return { body: pretty({ ...named, examples: [{ x: ONE }] }) };
  }
  const inputs = Object.entries(signature.inputs ?? {});
  if (inputs.length === 0) return { body: pretty({ ...named, inputs: {} }) };
  let n = 0;
  for (const [, input] of inputs) n += sizes(input).reduce((product, size) => product * size, 1);
  if (n > ELEMENTS_MAX) {
    return { problem: `The inputs have ${n} elements: send them from a program.` };
  }
  if (inputs.some(([, input]) => element(input.dtype) === null)) {
    return { problem: 'An input has a dtype that JSON cannot carry.' };
  }
  const isRow = ([, input]) => sizes(input).length > 0 || input.tensor_shape?.unknown_rank;
  const hasRows = inputs.every(isRow);
  const values = inputs.map(([alias, input]) => {
    const dims = sizes(input);
    return [alias, nested(element(input.dtype), hasRows ? dims.slice(1) : dims)];
  });
  const value = values.length === 1 ? values[0][1] : Object.fromEntries(values);
  return { body: pretty({ ...named, ...(hasRows ? { instances: [value] } : { inputs: value }) }) };
}

/** JSON with short lists on one line. */
function pretty(value, indent = '') {
  if (isLeaf(value)) return value?.literal ?? JSON.stringify(value);
  const deeper = `${indent}  `;
  if (Array.isArray(value)) {
    const items = value.map((one) => pretty(one, deeper));
    const line = `[${items.join(', ')}]`;
    const isShort = line.length <= LINE_MAX && !line.includes('\n');
    if (isShort || value.every(isLeaf)) return line;
    return `[\n${items.map((item) => deeper + item).join(',\n')}\n${indent}]`;
  }
  const entries = Object.entries(value);
  if (entries.length === 0) return '{}';
  const line = ([key, one]) => `${deeper}${JSON.stringify(key)}: ${pretty(one, deeper)}`;
  return `{\n${entries.map(line).join(',\n')}\n${indent}}`;
}

function isLeaf(value) {
  return typeof value !== 'object' || value === null || value.literal !== undefined;
}
