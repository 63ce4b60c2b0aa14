#![no_main]
#[allow(dead_code)]
#[path = "../../peer_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::signing_secrets(data);
});
