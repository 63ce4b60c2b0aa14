//! Fuzzing that fits into every test run: each target gets some twenty thousand inputs, the same
//! ones every time. `CHRONOS_FUZZ_ROUNDS` sets how many; `libfuzzer/` goes on for hours where this
//! ends.

mod destination_targets;
mod destinations;
mod journal;
mod journal_targets;
mod list_targets;
mod lists;
mod mutation;
mod nonsense;
mod option_targets;
mod options;
mod peer_targets;
mod peers;
mod targets;
mod thrift_seeds;
mod thrift_targets;
mod tls;
mod tls_targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mutation::Mutator;

/// Inputs of a target unless `CHRONOS_FUZZ_ROUNDS` says otherwise.
const ROUNDS: u64 = 20_000;
/// One of so many inputs must be accepted, or the properties of accepted inputs are hardly tested.
const ACCEPTED_SHARE_MIN: u64 = 100;

fn fuzz(target: fn(&[u8]) -> bool, seeds: &[&[u8]], tokens: &'static [&'static [u8]]) {
    fuzz_one_in(1, target, seeds, tokens);
}

/// Fuzzes a slow target with one of `share` inputs.
fn fuzz_one_in(
    share: u64,
    target: fn(&[u8]) -> bool,
    seeds: &[&[u8]],
    tokens: &'static [&'static [u8]],
) {
    let rounds = match std::env::var("CHRONOS_FUZZ_ROUNDS") {
        Ok(text) => text.parse().expect("CHRONOS_FUZZ_ROUNDS is a number"),
        Err(_) => ROUNDS,
    };
    let rounds = rounds / share;
    let run = |input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| target(input))).unwrap_or_else(|panic| {
            eprintln!("input: b\"{}\"", input.escape_ascii());
            resume_unwind(panic)
        })
    };
    for seed in seeds {
        assert!(run(seed), "seed b\"{}\" is refused", seed.escape_ascii());
    }
    let mut mutator = Mutator::new(7, seeds.iter().map(|seed| seed.to_vec()).collect(), tokens);
    let mut accepted = 0;
    for _ in 0..rounds {
        let input = mutator.input();
        if run(&input) {
            accepted += 1;
            mutator.keep(input);
        }
    }
    println!("{accepted} of {rounds} inputs accepted");
    assert!(accepted >= rounds / ACCEPTED_SHARE_MIN, "only {accepted} of {rounds} accepted");
}

#[test]
fn http_head() {
    fuzz(
        targets::http_head,
        &[
            b"POST /timers HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            b"\r\nPUT /timers/0004d9f548100000-2-0000000000000000 HTTP/1.1\r\nhost: [::1]:7253\r\n\
              Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
            b"GET http://a/ping?x%23y HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost:\r\nX-Empty:\r\nCookie: a=\xff;\tb\r\n\r\n\
              GET / HTTP/1.1\r\n\r\n",
        ],
        &[
            b"Content-Length: ",
            b"Transfer-Encoding: chunked\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"HTTP/2.0",
            b"Host: b\r\n",
            b"Expect: 100-continue\r\n",
            b"Connection: close\r\n",
            b"chunked, gzip",
            b" \r\n",
            b"\r\n\t",
            b"GET ",
            b"POST ",
            b"18446744073709551616",
            b"+1",
            b"?",
            b"#",
            b"https://",
            b"%2e%2e",
            b": ",
            b" :",
        ],
    );
}

#[test]
fn callback_answer() {
    fuzz(
        targets::callback_answer,
        &[
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: x\r\n\r\nok",
            b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n",
            b"HTTP/1.0 404\r\nConnection: keep-alive\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 503 x\xe9\r\nTransfer-Encoding: gzip, chunked\r\n\
              Connection: close\r\n\r\n0\r\n\r\n",
        ],
        &[
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"HTTP/1.1 ",
            b"HTTP/1.0 ",
            b"100",
            b"204",
            b"304",
            b"099",
            b"1000",
            b"Connection: close\r\n",
            b"keep-alive",
            b"18446744073709551616",
            b"chunked, gzip",
            b" \r\n",
            b"\r\n ",
        ],
    );
}

#[test]
fn chunked_body() {
    fuzz(
        targets::chunked_body,
        &[
            b"\xff\x035\r\nhello\r\n0\r\n\r\nGET",
            b"\x10\x001;name=\"v ;\"\r\na\r\nA\r\n0123456789\r\n000;last\r\nX-Sum: 5\r\nY:\r\n\r\n",
            b"\x40\x1100000000000000ff ; x\r\n\
              0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
              0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
              0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
              0123456789abcde\r\n0\r\n\r\n",
            b"\x00\x000\r\n\r\n",
        ],
        &[
            b"\r\n",
            b"0\r\n\r\n",
            b"5\r\nhello\r\n",
            b"ffffffffffffffff",
            b"10000000000000000",
            b";",
            b";x=\"y\"",
            b"\n",
            b"\r",
            b"X: y\r\n",
            b": ",
            b"00000000",
            b"1\r\na\r\n",
            b"-1",
            b"0x",
        ],
    );
}

#[test]
fn bulk_lines() {
    fuzz_one_in(
        4,
        targets::bulk_lines,
        &[
            b"\x3f\x05{\"a\":1}\n{\"b\":2}\r\n\n \r\n{\"c\":3}",
            b"\x04\x00abcd\nabcde\r\nabcd\r\nabcdefghij\nx",
            b"\x08\x20\r\r\n\n\n\ra\rb\n",
        ],
        &[
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n\n",
            b" ",
            b"\t",
            b"\x00",
            b"\x0b",
            b"\x8a",
            b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ],
    );
}

#[test]
fn accept() {
    fuzz(
        targets::accept,
        &[
            b"application/problem+json",
            b"text/html, application/problem+json;charset=utf-8;q=0.001, */*;q=0.8",
            b"text/plain;x=\"a,\\\"b\" , Application/Problem+JSON ; Q=1.000",
        ],
        &[
            b",",
            b";",
            b"q=",
            b";q=0",
            b";q=0.000",
            b";q=0.5",
            b";q=1.0",
            b"application/problem+json",
            b"*/*",
            b"\"",
            b"\\",
            b" ",
            b"=",
            b"1.001",
        ],
    );
}

#[test]
fn timer_json() {
    fuzz(
        targets::timer_json,
        &[
            br#"{"timing":{"interval":1.5},"callback":{"http":{"uri":"http://a/b","opaque":"x"}}}"#,
            br#"{"timing":{"interval":60,"repeat-for":3600.001},"callback":{"http":{
                "uri":"http://[::1]:9/p?q","opaque":"\u0000\ud83d\ude00\n\"\\"}},
                "reliability":{"replication-factor":2},
                "statistics":{"tag-info":[{"type":"CALL","count":3},{"type":"REG"}]}}"#,
            br#" {"x":[1,{"y":null}],"callback":{"http":{"opaque":"","uri":"http://1.2.3.4:80",
                "z":-1e-7}},"timing":{"repeat-for":0,"interval":0,"start-delta":-5},
                "reliability":{},"statistics":{}} "#,
            br#"{"timing":{"interval":3155760000},"callback":{"http":{"uri":"https://a","opaque":
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}},
                "reliability":{"replication-factor":-9223372036854775808}}"#,
        ],
        &[
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"timing\":",
            b"\"interval\":",
            b"\"repeat-for\":",
            b"\"callback\":",
            b"\"http\":{}",
            b"\"uri\":",
            b"\"opaque\":",
            b"\"replication-factor\":",
            b"\"tag-info\":[]",
            b"\"count\":",
            b"\"count\":0",
            b"\"type\":",
            b"null",
            b"true",
            b"-1",
            b"0.0005",
            b"1e400",
            b"1e-9",
            b"1E+5",
            b"18446744073709551616",
            b"9007199254740993",
            b"4294967296",
            b"1e4294967296",
            b"\\u0000",
            b"\\ud800",
            b"\\udc00",
            b"\\u12",
            b"\\",
            b"\\\"",
            b"\"\"",
            b"{\"type\":\"x\"}",
            b"\xef\xbb\xbf",
            b"\xc3\xa9",
            b"-0.0",
            b"0.1",
            b"1.7976931348623157e308",
        ],
    );
}

#[test]
fn timer_name() {
    fuzz(
        targets::timer_name,
        &[
            b"invoice-17",
            b"a%20b%2Fc",
            b"%e2%82%AC",
            b"/timers/by-name/x?",
            b"/timers/%62y-name/%00",
            "\u{20ac}".as_bytes(),
        ],
        &[b"%", b"%2", b"%2f", b"%ff", b"/", b"%C3%28", b"%80", b"by-name", b"..", b"%25"],
    );
}

#[test]
fn conditions() {
    fuzz(
        targets::conditions,
        &[
            b"PUT /timers/by-name/a HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\n\r\n",
            b"PUT /timers/by-name/a HTTP/1.1\r\nIf-Match: \"00000000000000ff\"\r\n\r\n",
            b"POST /timers HTTP/1.1\r\nIdempotency-Key: a b\r\n\r\n",
            b"if-match: *",
        ],
        &[
            b"If-Match: ",
            b"If-None-Match:",
            b"Idempotency-Key: ",
            b"\r\n",
            b"\"",
            b"*",
            b"W/",
            b", ",
            b"\t",
            b"0123456789abcdef",
        ],
    );
}

#[test]
fn timer_id() {
    fuzz(
        targets::timer_id,
        &[
            b"/timers/0004d9f548100000-2-00000000000000ff",
            b"/timers/0004D9F548100000%2d16%2Dabcdefabcdefabcd",
            b"/timers/0004d9f5481000000123456789abcdef",
            b"/timers/0004d9f548100000-3-anything/../%00",
            b"/timers",
            b"/timers/references",
            b"/timers/by-name/a%2Fb",
            b"/dead-letters/0004d9f548100000-2-00000000000000ff/replay",
            b"/dead-letters/replay",
            b"/timers/by-name/a%2Fb/pause",
            b"/timers/687ebc01f9400001-2-0000801000840080/run-now",
            b"/ping",
        ],
        &[
            b"/timers/",
            b"-",
            b"-2-",
            b"-16-",
            b"-17-",
            b"-0-",
            b"%2d",
            b"%2e%2e",
            b"%30",
            b"%",
            b"0123456789abcdef",
            b"ABCDEF",
            b"/",
            b"references",
            b"ping",
            b"\xc3\xa9",
            b"00000000000000000000000",
        ],
    );
}

#[test]
fn callback_uri() {
    fuzz(
        targets::callback_uri,
        &[
            b"http://a",
            b"http://a:8#part",
            b"HTTP://ralf.example:10888/call-id/a%2Fb?timer-interim=true#part",
            b"http://[2001:DB8::1]:65535?x",
            b"http://127.0.0.1:1/",
            b"http://1a.2b_c-d./user@b:c",
        ],
        &[
            b"http://",
            b"https://",
            b"//",
            b":",
            b":0",
            b":65536",
            b":080",
            b"[::1]",
            b"[::ffff:1.2.3.4]",
            b"[",
            b"]",
            b"%25",
            b"@",
            b"..",
            b".",
            b"127.1",
            b"0x7f",
            b"255.255.255.255",
            b"256",
            b"?",
            b"#",
            b"\r\n",
            b" ",
            b"\\",
            b"\xc3\xa9",
            b"xn--a",
        ],
    );
}

#[test]
fn config() {
    fuzz(
        targets::config,
        &[
            b"[node]\nlisten = \"127.0.0.1:7253\"\nspin_us = 0x10\n",
            b"node.cores = [0, 1]\n[limits]\ntimers_max = 1_000\nbody_bytes_max = 300_000\n",
            b"[admin]\nenabled = false\nlisten = '[::1]:1'\n\
              [log]\nlevel = \"warn\" # why\nformat = 'json'\n",
            b"[callbacks]\ntimeout_ms = 2000\nretry_first_ms = 100\nretry_max_ms = 5000\n\n\
              [cluster]\nlocalhost = 'a:1'\nnodes = ['a:1', 'b']\nacknowledge = 'first'\n\
              [sites]\nlocal = 's'\nremote = ['t=c:1']\n",
            b"[callbacks]\nallow = ['*', '*.a-b.c:1-2', '10.0.0.0/8:80']\ndeny = ['[fd00::]/8:1']\n",
        ],
        &[
            b"[node]\n",
            b"[limits]\n",
            b"[callbacks]\n",
            b"[admin]\n",
            b"[log]\n",
            b"[[",
            b"]]",
            b"\n",
            b" = ",
            b"''",
            b"\"\"\"",
            b"\\u0000",
            b"\\U0010ffff",
            b"\\u001b",
            b"pin = false\n",
            b"shards = 2\n",
            b"cores = [",
            b"listen = ",
            b"timers_max",
            b"true",
            b"-1",
            b"1.5",
            b"nan",
            b"9223372036854775808",
            b"1979-05-27",
            b"{a=1}",
            b"instance_id = 127\n",
            b"localhost = ",
            b"joining = [",
            b"127.0.0.1:7254",
            b"\xef\xbb\xbf",
            b"\x1b[31m",
            b"#",
            b".",
        ],
    );
}

#[test]
fn ini() {
    fuzz(
        targets::ini,
        &[
            b"[http]\nbind-address = 10.0.0.1 # mine\nbind-port = 7253\nthreads = 50\n\n\
              [logging]\nfolder = /var/log/chronos\nlevel = 5\n",
            b"[cluster]\r\nlocalhost = a:1\r\nnode = a:1\r\nnode=b\r\njoining = c\r\n\
              leaving = d\r\npromotion = false\r\n",
            b"\xef\xbb\xbfsites.local_site = x\n[sites]\nremote_site = y=e:1\n\
              replicate_timers_across_sites = true\n[identity]\ninstance_id = 127\n",
            b"# all of it\n[dns]\nservers = 127.0.0.1\n[exceptions]\nmax_ttl = 600\n\
              [throttling]\nmax_tokens = 1000\n[admin]\nlisten = [::1]:1\n",
        ],
        &[
            b"[http]\n",
            b"[cluster]\n",
            b"[sites]\n",
            b"[limits]\n",
            b"[clutser]\n",
            b"\n",
            b" = ",
            b"=",
            b"#",
            b".",
            b"]",
            b"[",
            b"node = a:1\n",
            b"localhost = ",
            b"joining = b\n",
            b"remote_site = z=f\n",
            b"bind-port = 0\n",
            b"instance_id = 128\n",
            b"deployment_id = 7\n",
            b"level = 3\n",
            b"on",
            b"18446744073709551616",
            b",",
            b"\"",
            b"\x1b[31m",
            b"\x00",
            b"\xc3\xa9",
        ],
    );
}
