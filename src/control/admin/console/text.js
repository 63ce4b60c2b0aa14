// Numbers and times as people read them.

const NOTHING = "–";
// Keeps a figure and its unit on one line.
const TIED = "\u00a0";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// 1234567 as "1,234,567"; ten millions and more as "12.3 M".
function count(value) {
  if (!isNumber(value)) return NOTHING;
  if (value < 10_000_000) return whole.format(value);
  return value < 1e9 ? `${(value / 1e6).toFixed(1)}${TIED}M`
    : `${(value / 1e9).toFixed(2)}${TIED}G`;
}

// A rate: one decimal while it is small.
function rate(value) {
  if (!isNumber(value)) return NOTHING;
  return value > 0 && value < 10 ? value.toFixed(1) : count(Math.round(value));
}

function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const figure = unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1);
  return `${figure}${TIED}${units[unit]}`;
}

// A duration: "0.15 ms", "2.4 s", "3 min 20 s", "2 d 4 h".
function lasting(ms) {
  if (!isNumber(ms)) return NOTHING;
  if (ms < 0) return `−${lasting(-ms)}`;
  if (ms === 0) return `0${TIED}ms`;
  if (ms < 10) return `${ms.toFixed(2).replace(/\.?0+$/, "")}${TIED}ms`;
  if (ms < 1_000) return `${Math.round(ms)}${TIED}ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1).replace(/\.0$/, "")}${TIED}s`;
  const seconds = Math.round(ms / 1_000);
  const parts = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  let rest = seconds;
  const words = [];
  for (const [size, unit] of parts) {
    const number = Math.floor(rest / size);
    rest %= size;
    if (number > 0 || words.length > 0) words.push([number, unit]);
  }
  return words.slice(0, 2).filter(([number]) => number > 0)
    .map(([number, unit]) => `${number}${TIED}${unit}`).join(" ");
}

function fromNow(ms) {
  if (!isNumber(ms)) return NOTHING;
  return ms < 0 ? `${lasting(-ms)} overdue` : `in ${lasting(ms)}`;
}

// A moment of the node, in the zone of whoever reads.
function moment(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text ?? NOTHING);
  const digits = (number) => String(number).padStart(2, "0");
  const day = [at.getFullYear(), digits(at.getMonth() + 1), digits(at.getDate())].join("-");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(digits).join(":");
  return `${day} ${time}`;
}

function share(part, of) {
  if (!isNumber(part) || !isNumber(of) || of <= 0) return NOTHING;
  const percent = (100 * part) / of;
  if (percent > 0 && percent < 0.1) return `<${TIED}0.1${TIED}%`;
  return `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)}${TIED}%`;
}

const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
