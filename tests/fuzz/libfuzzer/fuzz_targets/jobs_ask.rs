#![no_main]
#[allow(dead_code)]
#[path = "../../list_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::jobs_ask(data);
});
