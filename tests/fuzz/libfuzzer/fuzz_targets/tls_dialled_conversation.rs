#![no_main]
#[allow(dead_code)]
#[path = "../../tls_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::tls_dialled_conversation(data);
});
