// Numbers as people read them.

export function rate(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(2) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
  if (n >= 10 || n === 0) return Math.round(n).toString();
  return n.toFixed(1);
}

export function count(n) { return n < 0 ? "–" : n.toLocaleString("en"); }

export function micros(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(2) + " s";
  if (us >= 1e3) return (us / 1e3).toFixed(us >= 1e4 ? 0 : 1) + " ms";
  return us === 0 ? "–" : Math.round(us) + " µs";
}

export function bytes(n) {
  if (n <= 0) return "0";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const i = Math.min(Math.floor(Math.log2(n) / 10), units.length - 1);
  return (n / 1024 ** i).toFixed(i > 0 ? 1 : 0) + " " + units[i];
}

export function seconds(s) {
  if (s < 0) return "–";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

export function millis(ms) {
  if (ms < 0) return "–";
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  return seconds(ms / 1000);
}

export function clock(ms) {
  return new Date(ms).toLocaleString("sv"); // 2026-11-23 03:00:00
}
