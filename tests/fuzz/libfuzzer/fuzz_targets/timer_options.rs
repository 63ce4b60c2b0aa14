#![no_main]
#[allow(dead_code)]
#[path = "../../option_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::timer_options(data);
});
