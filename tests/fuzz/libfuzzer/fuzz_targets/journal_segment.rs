#![no_main]
#[allow(dead_code)]
#[path = "../../journal_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::journal_segment(data);
});
