/* modules.mjs - require() and import() of a cell resolve from the current working directory.
 *
 * import() is bound to the location of the code that contains it. So for each directory a function
 * that contains an import() is compiled there, once. */
import Module, { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const importers = new Map();

function here() {
  return path.join(process.cwd(), 'cell.js');
}

function cellModule(file) {
  const made = new Module(file);
  made.filename = file;
  made.paths = Module._nodeModulePaths(path.dirname(file));
  return made;
}

export function requireAt(id) {
  return createRequire(here())(id);
}
requireAt.resolve = (id, options) => createRequire(here()).resolve(id, options);
requireAt.cache = Module._cache;

export function importAt(specifier, options) {
  const file = here();
  if (!importers.has(file)) {
    const made = cellModule(file);
    made._compile('module.exports = (s, o) => (o === undefined ? import(s) : import(s, o));', file);
    importers.set(file, made.exports);
  }
  return importers.get(file)(String(specifier), options);
}

export function metaAt() {
  const file = here();
  return { url: pathToFileURL(file).href, dirname: path.dirname(file), filename: file, resolve: (id) => pathToFileURL(createRequire(file).resolve(id)).href };
}
