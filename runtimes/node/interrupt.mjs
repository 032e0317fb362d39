/* interrupt.mjs - SIGINT ends a cell, whatever it does.
 *
 * Node can terminate a script on SIGINT (vm, breakOnSigint): a separate thread waits for the signal
 * meanwhile. But Node starts and stops that thread with each script, and a signal that arrives
 * while it stops is lost, or ends the process, because no handler is set. So the thread is started
 * once and kept, by the functions that Node's own REPL uses. A signal that arrives while no script
 * runs is recorded there, and polled while a cell awaits. If these functions are missing, the gap
 * remains.
 *
 * A SIGINT listener of user code receives the signal instead, until the next cell. */
import vm from 'node:vm';

const LOOK_MS = 20;

export class Interrupted extends Error {
  constructor() {
    super('the cell was interrupted');
    this.name = 'Interrupted';
    this.stack = 'Interrupted: the cell was interrupted';
  }
}

function watchdogOfNode() {
  try {
    const found = process.binding('contextify');
    return typeof found.startSigintWatchdog === 'function' && typeof found.stopSigintWatchdog === 'function' ? found : null;
  } catch {
    return null;
  }
}

let watchdog = null;
let listener = () => {};

/* Called once, when the kernel starts. */
export function install() {
  watchdog = watchdogOfNode();
  if (watchdog) watchdog.startSigintWatchdog();
  else process.on('SIGINT', () => listener());
}

/* Whether a signal arrived since the last call. Starting twice and stopping once returns and clears
 * the flag, and keeps the watchdog running. */
function pending() {
  watchdog.startSigintWatchdog();
  return watchdog.stopSigintWatchdog();
}

/* Called before a cell: discards earlier signals, and removes a listener that the previous cell
 * left. */
export function begin() {
  if (!watchdog) return;
  if (process.listenerCount('SIGINT') > 0) {
    watchdog.stopSigintWatchdog();
    process.removeAllListeners('SIGINT');
    watchdog.startSigintWatchdog();
  }
  pending();
}

/* Calls `onInterrupt` if a signal arrives while no script runs; returns a function that stops this.
 */
export function watch(onInterrupt) {
  if (!watchdog) {
    listener = onInterrupt;
    return () => { listener = () => {}; };
  }
  const timer = setInterval(() => { if (pending()) onInterrupt(); }, LOOK_MS);
  return () => clearInterval(timer);
}

/* Runs `f` so that SIGINT ends it, even in a loop. */
export function interruptible(f) {
  Object.defineProperty(globalThis, '__coveEnter', { value: f, configurable: true });
  try {
    return vm.runInThisContext('{ const f = globalThis.__coveEnter; delete globalThis.__coveEnter; f(); }', { breakOnSigint: true });
  } catch (error) {
    if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw new Interrupted();
    throw error;
  } finally {
    delete globalThis.__coveEnter;
  }
}
