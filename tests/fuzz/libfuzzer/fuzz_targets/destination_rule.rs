#![no_main]
#[allow(dead_code)]
#[path = "../../destination_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::destination_rule(data);
});
