#![no_main]
#[allow(dead_code)]
#[path = "../../thrift_targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::thrift_request(data);
});
