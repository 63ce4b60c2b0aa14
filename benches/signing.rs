//! What a signature adds to a callback: time, bytes and allocations, with one secret and with two,
//! beside the same callback without. Rounds of the three alternate, so that noise meets all.

mod counting;

use std::hint::black_box;
use std::time::Instant;

use chronos::base::ids::TimerId;
use chronos::base::time::WallMs;
use chronos::node::callbacks::request::{CallbackRequest, Sender, write_request};
use chronos::node::callbacks::signing::{Pop, Signer};
use chronos::timer::version::Version;
use chronos::wire::wall_time::WallTimeWriter;
use counting::Asked;

const SECRETS: [&str; 2] = [
    "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
];
const HEAD: &[u8] =
    b" HTTP/1.1\r\nHost: 10.0.0.7:10888\r\nContent-Type: application/octet-stream\r\n\
    X-Sequence-Number: ";
const TARGET: &[u8] = b"/call-id/5f0c1b7a9e?timer-interim=true";
/// Bytes of the bodies.
const BODIES: [usize; 4] = [0, 40, 120, 1_024];
/// Rounds, whose medians are printed.
const ROUNDS: usize = 31;
const PER_ROUND: u64 = 20_000;

/// Writes callbacks of pops that follow each other. Returns the ns for each.
fn round_ns(out: &mut Vec<u8>, body: &[u8], signer: Option<&Signer>) -> f64 {
    let mut times = WallTimeWriter::default();
    let begin = Instant::now();
    for sequence in 1..=PER_ROUND {
        let pop = Pop { id: TimerId(sequence << 12), version: Version(1 << 40), sequence };
        let callback =
            CallbackRequest { head: HEAD, target: TARGET, opaque: body, pop, told: None };
        out.clear();
        let at = WallMs(1_674_087_231_000 + sequence);
        let signed = signer.map(|signer| (signer, at));
        write_request(out, black_box(&callback), &mut Sender { signed, times: &mut times });
        black_box(&*out);
    }
    begin.elapsed().as_nanos() as f64 / PER_ROUND as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let signer = |text: String| Signer::parse(text.as_bytes()).expect("good secrets");
    let (one, two) = (signer(SECRETS[0].to_owned()), signer(SECRETS.join("\n")));
    let signers = [None, Some(&one), Some(&two)];
    let mut out = Vec::new();
    for bytes in BODIES {
        let body = vec![b'x'; bytes];
        let mut rounds = signers.map(|_| Vec::with_capacity(ROUNDS));
        let lengths = signers.map(|signer| {
            round_ns(&mut out, &body, signer);
            out.len()
        });
        let before = Asked::by_this_thread();
        for _ in 0..ROUNDS {
            for (taken, signer) in rounds.iter_mut().zip(signers) {
                taken.push(round_ns(&mut out, &body, signer));
            }
        }
        let asked = Asked::since(before).allocations;
        let [plain, one, two] = rounds.each_mut().map(|taken| median(taken));
        println!(
            "body of {bytes} bytes: unsigned {plain:.0} ns; one secret +{:.0} ns, {} bytes; two \
             +{:.0} ns, {} bytes; {asked} allocations in {} callbacks",
            one - plain,
            lengths[1] - lengths[0],
            two - plain,
            lengths[2] - lengths[0],
            3 * ROUNDS as u64 * PER_ROUND,
        );
    }
}
