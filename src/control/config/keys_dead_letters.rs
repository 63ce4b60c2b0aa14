//! The keys of dead letters, in the one table of keys.

// May panic: expectations 1.
// Why it does not: configured 1.

use super::key::Key;
use super::value::{Value, ValueKind};
use crate::base::limits::INTERVAL_MS_MAX;

macro_rules! number {
    ($name:ident: $type:ty, $min:expr, $max:expr, $unit:literal, $help:literal) => {
        Key {
            section: "dead_letters",
            name: stringify!($name),
            kind: ValueKind::Integer { min: $min, max: $max, unit: $unit },
            flag: None,
            help: $help,
            get: |config| Value::Integer(u64::from(config.node.callbacks.dead_letters.$name)),
            set: |config, value| {
                config.node.callbacks.dead_letters.$name =
                    <$type>::try_from(value.integer()).expect("the key's range fits its field")
            },
        }
    };
}

/// `dead_letters.per_core_max`.
pub(super) const PER_CORE_MAX: Key = number!(per_core_max: u32, 0, 10_000_000, "dead letters",
    "Most dead letters that one core holds; the oldest leaves first. 0: none is kept.");

/// `dead_letters.bytes_per_core_max`.
pub(super) const BYTES_PER_CORE_MAX: Key = number!(bytes_per_core_max: u64, 0, 1 << 40, "bytes",
    "Most bytes of the contents of one core's dead letters; the oldest leaves first.");

/// `dead_letters.keep_ms`.
pub(super) const KEEP_MS: Key = number!(keep_ms: u64, 1_000, INTERVAL_MS_MAX, "milliseconds",
    "How long a dead letter is kept.");

/// `dead_letters.plain`.
pub(super) const PLAIN: Key = Key {
    section: "dead_letters",
    name: "plain",
    kind: ValueKind::Boolean,
    flag: None,
    help: "Whether the last pop of a timer without a retry policy is kept, too, when it is given \
           up.",
    get: |config| Value::Boolean(config.node.callbacks.dead_letters.plain),
    set: |config, value| config.node.callbacks.dead_letters.plain = value.boolean(),
};
