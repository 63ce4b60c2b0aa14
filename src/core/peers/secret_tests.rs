//! Two ends that know secrets, or do not, without sockets: whom they believe, and what becomes of
//! words that were changed, told twice, or meant for another end.

use crate::core::peers::greeting::{Greeting, Step};
use crate::core::peers::handshake::{
    Answered, Asked, Protocol, parse_request, refusal_of, write_acceptance, write_challenge,
};
use crate::core::peers::hello::{Hello, HelloRefusal};
use crate::core::peers::secret::{
    FILE_BYTES_MAX, Guard, ProofVerdict, SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX,
    SecretError, Secrets, Word,
};
use std::sync::Arc;

const ONE: &str = "the first secret of this cluster, ok";
const TWO: &str = "the second secret of this cluster ok";
const DIALLER: &str = "10.0.0.1:7253";
const ACCEPTOR: &str = "10.0.0.2:7253";

fn guard(lines: &[&str], accepts_unproven: bool) -> Guard {
    let secrets = (!lines.is_empty())
        .then(|| Arc::new(Secrets::parse(lines.join("\n").as_bytes()).expect("secrets")));
    Guard { secrets, accepts_unproven }
}

fn hello(name: &str) -> Hello {
    Hello {
        name: name.into(),
        instance: 513,
        incarnation: 0x0123_4567_89ab_cdef ^ name.len() as u64,
        view_id: 5_030_520_784_871_784_460,
        shard: 3,
        shards: 4,
        complete_since: None,
        site: None,
    }
}

/// The acceptor's half of one connection, as the server has it.
struct Acceptor {
    guard: Guard,
    name: String,
    nonce: Word,
    challenge: Option<Word>,
}

impl Acceptor {
    fn new(guard: Guard, nonce: u8) -> Self {
        Self { guard, name: ACCEPTOR.into(), nonce: Word([nonce; 32]), challenge: None }
    }

    /// Returns the answer to the head of a request.
    fn answer(&mut self, head: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let refuse = |out: &mut Vec<u8>, refusal: HelloRefusal| {
            let (status, header) = refusal_of(&refusal);
            out.extend_from_slice(format!("HTTP/1.1 {status} No\r\n{header}\r\n").as_bytes());
        };
        let Asked { protocol, hello: theirs, offer } = match parse_request(head) {
            Ok(asked) => asked,
            Err((status, _)) => return format!("HTTP/1.1 {status} No\r\n\r\n").into_bytes(),
        };
        let own = hello(&self.name);
        let of_this = (protocol.name(), self.name.as_str(), &own);
        match self.guard.judge(of_this, &theirs, offer, self.challenge.take()) {
            ProofVerdict::Unproven => write_acceptance(&mut out, protocol, &own, None),
            ProofVerdict::Proven(proof) => write_acceptance(&mut out, protocol, &own, Some(proof)),
            ProofVerdict::Challenge => {
                self.challenge = Some(self.nonce);
                write_challenge(&mut out, self.nonce);
            }
            ProofVerdict::Refused(reason) => refuse(&mut out, HelloRefusal::Unproven(reason)),
        }
        out
    }
}

fn dial(guard: &Guard, nonce: u8) -> Greeting {
    Greeting::new(Protocol::Frames, guard, hello(DIALLER), ACCEPTOR, Word([nonce; 32]))
}

fn said(greeting: &Greeting) -> String {
    let mut out = Vec::new();
    greeting.write("h", &mut out);
    String::from_utf8(out).expect("heads are text")
}

/// Returns how a talk ends when an intruder may change each word. `change` gets the number of the
/// word, 0 to 3 in the order in which the words are said.
fn meet(
    mut greeting: Greeting,
    mut acceptor: Acceptor,
    mut change: impl FnMut(u32, String) -> String,
) -> Step {
    for round in 0..2 {
        let request = change(2 * round, said(&greeting));
        let answer = String::from_utf8(acceptor.answer(request.as_bytes())).expect("text");
        match greeting.received(change(2 * round + 1, answer).as_bytes()) {
            Step::Say => {}
            step => return step,
        }
    }
    panic!("nobody is challenged twice");
}

fn ends(dialler: &Guard, acceptor: &Guard) -> Step {
    meet(dial(dialler, 1), Acceptor::new(acceptor.clone(), 2), |_, word| word)
}

fn is_upgraded(step: &Step) -> bool {
    matches!(step, Step::Ended(Answered::Upgraded { .. }))
}

const UNPROVEN: Step = Step::Ended(Answered::Unproven);

#[test]
fn who_meets_whom() {
    let (none, one, two) = (guard(&[], false), guard(&[ONE], false), guard(&[TWO], false));
    let (soft, soft_two) = (guard(&[ONE], true), guard(&[TWO], true));
    for (dialler, acceptor) in [(&none, &none), (&one, &one), (&one, &soft), (&soft, &one)] {
        assert!(is_upgraded(&ends(dialler, acceptor)), "{dialler:?} {acceptor:?}");
    }
    for (dialler, acceptor) in [(&none, &one), (&one, &none), (&one, &two), (&two, &one)] {
        assert_eq!(ends(dialler, acceptor), UNPROVEN, "{dialler:?} {acceptor:?}");
    }
    assert!(is_upgraded(&ends(&none, &soft)) && is_upgraded(&ends(&soft, &none)));
    assert_eq!(ends(&soft, &soft_two), UNPROVEN, "a proof that is offered must be right");
}

#[test]
fn secrets_change_one_node_at_a_time() {
    // The new secret is appended everywhere, then put first everywhere, then the old secret is
    // taken out everywhere.
    let steps = [&[ONE][..], &[ONE, TWO], &[TWO, ONE], &[TWO]].map(|lines| guard(lines, false));
    for pair in steps.windows(2) {
        for (dialler, acceptor) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (dialler, acceptor) = (&pair[dialler], &pair[acceptor]);
            assert!(is_upgraded(&ends(dialler, acceptor)), "{dialler:?} {acceptor:?}");
        }
    }
    assert_eq!(ends(&steps[0], &steps[3]), UNPROVEN);
    assert_eq!(ends(&steps[2], &steps[0]), UNPROVEN, "put first before all had it");
}

#[test]
fn a_dialled_node_says_nothing_before_it_is_shown_a_proof() {
    let secret = guard(&[ONE], false);
    let mut acceptor = Acceptor::new(secret.clone(), 2);
    let challenge = acceptor.answer(said(&dial(&secret, 1)).as_bytes());
    let challenge = String::from_utf8(challenge).expect("text");
    let own = hello(ACCEPTOR);
    for told in [own.name, format!("{:016x}", own.incarnation), own.view_id.to_string()] {
        assert!(!challenge.contains(&told), "{challenge}");
    }
    assert!(challenge.starts_with("HTTP/1.1 401 ") && !challenge.contains(ONE), "{challenge}");
}

#[test]
fn every_changed_field_is_noticed() {
    let secret = guard(&[ONE], false);
    let whole = |_: u32, word: String| word;
    let changed = |number: u32, is: &str, becomes: &str| {
        let mut has_changed = false;
        let step = meet(dial(&secret, 1), Acceptor::new(secret.clone(), 2), |at, word| {
            if at != number {
                return word;
            }
            has_changed |= word.contains(is);
            word.replace(is, becomes)
        });
        assert!(has_changed, "{is} is not said in {number}");
        assert!(!is_upgraded(&step), "{is} -> {becomes} in {number} is not noticed");
    };
    assert!(is_upgraded(&meet(dial(&secret, 1), Acceptor::new(secret.clone(), 2), whole)));
    // Word 2 is the request with the proof, word 3 its answer.
    for number in [2, 3] {
        let name = if number == 2 { DIALLER } else { ACCEPTOR };
        let incarnation = format!("{:016x}", hello(name).incarnation);
        changed(number, &format!("X-Chronos-Name: {name}"), "X-Chronos-Name: 10.0.0.3:7253");
        changed(number, "X-Chronos-Instance: 513", "X-Chronos-Instance: 514");
        changed(number, &incarnation, "0000000000000001");
        changed(number, "X-Chronos-View: 5030520784871784460", "X-Chronos-View: 1");
        changed(number, "X-Chronos-Shard: 3", "X-Chronos-Shard: 2");
        changed(number, "X-Chronos-Shards: 4", "X-Chronos-Shards: 5");
        changed(number, "X-Chronos-Proof: ", "X-Chronos-Proof: 00");
        changed(number, "X-Chronos-Proof: ", "X-Chronos-Proved: ");
        changed(number, "chronos-peer/1", "chronos-site/1");
    }
    changed(2, &Word([1; 32]).to_string(), &Word([9; 32]).to_string());
    changed(1, &Word([2; 32]).to_string(), &Word([9; 32]).to_string());
    // One bit of each byte of both proofs changes.
    for number in [2, 3] {
        for at in 0..32 {
            let step = meet(dial(&secret, 1), Acceptor::new(secret.clone(), 2), |word, said| {
                let Some(begins) = said.find("X-Chronos-Proof: ").filter(|_| word == number) else {
                    return said;
                };
                let begins = begins + "X-Chronos-Proof: ".len();
                let mut proof = Word::parse(&said[begins..begins + 64]).expect("a proof");
                proof.0[at] ^= 1 << (at % 8);
                format!("{}{proof}{}", &said[..begins], &said[begins + 64..])
            });
            assert_eq!(step, UNPROVEN, "byte {at} of word {number}");
        }
    }
}

#[test]
fn a_proof_is_worth_nothing_on_another_connection() {
    let secret = guard(&[ONE], false);
    let mut heard = Vec::new();
    let first = meet(dial(&secret, 1), Acceptor::new(secret.clone(), 2), |_, word| {
        heard.push(word.clone());
        word
    });
    assert!(is_upgraded(&first));
    // The proof is told again at once, in answer to a new challenge, and on a connection that was
    // challenged before.
    let is_refused = |answer: Vec<u8>| answer.starts_with(b"HTTP/1.1 403 ");
    assert!(is_refused(Acceptor::new(secret.clone(), 2).answer(heard[2].as_bytes())));
    let mut other = Acceptor::new(secret.clone(), 7);
    assert!(other.answer(heard[0].as_bytes()).starts_with(b"HTTP/1.1 401 "));
    assert!(is_refused(other.answer(heard[2].as_bytes())), "another nonce");
    assert!(is_refused(other.answer(heard[2].as_bytes())), "a nonce is good for one try");
    let mut again = Acceptor::new(secret.clone(), 2);
    assert!(again.answer(heard[0].as_bytes()).starts_with(b"HTTP/1.1 401 "));
    assert!(is_refused(again.answer(heard[0].as_bytes())), "who is challenged proves or goes");
    // The acceptance is told again to a dialler with another nonce.
    let mut greeting = dial(&secret, 9);
    said(&greeting);
    assert_eq!(greeting.received(heard[1].as_bytes()), Step::Say);
    assert_eq!(greeting.received(heard[3].as_bytes()), UNPROVEN);
}

#[test]
fn a_proof_is_worth_nothing_at_another_node() {
    let secret = guard(&[ONE], false);
    // An intruder that takes node 2's calls leads them to node 3.
    let mut third = Acceptor::new(secret.clone(), 2);
    third.name = "10.0.0.3:7253".into();
    assert_eq!(meet(dial(&secret, 1), third, |_, word| word), UNPROVEN);
    // A node at the same address belongs to a site of another name.
    let to_site = Greeting::new(Protocol::Site, &secret, hello(DIALLER), "site2", Word([1; 32]));
    assert_eq!(meet(to_site, Acceptor::new(secret, 2), |_, word| word), UNPROVEN);
}

#[test]
fn a_reflected_proof_is_worth_nothing() {
    let secret = guard(&[ONE], false);
    // The dialler gets its own words back as words of the other end.
    let mut greeting = dial(&secret, 1);
    let mut challenge = Vec::new();
    write_challenge(&mut challenge, Word([1; 32]));
    assert_eq!(greeting.received(&challenge), Step::Say);
    let proof = said(&greeting);
    let proof = proof.split("X-Chronos-Proof: ").nth(1).expect("it proves");
    let proof = Word::parse(&proof[..64]).expect("a proof");
    for name in [DIALLER, ACCEPTOR] {
        let mut answer = Vec::new();
        write_acceptance(&mut answer, Protocol::Frames, &hello(name), Some(proof));
        let mut greeting = dial(&secret, 1);
        assert_eq!(greeting.received(&challenge), Step::Say);
        assert_eq!(greeting.received(&answer), UNPROVEN);
    }
    // A node that is dialled gets the words that it said when it dialled.
    let mut itself = Acceptor::new(secret.clone(), 1);
    itself.name = DIALLER.into();
    let mut greeting = dial(&secret, 1);
    assert!(itself.answer(said(&greeting).as_bytes()).starts_with(b"HTTP/1.1 401 "));
    assert_eq!(greeting.received(&challenge), Step::Say);
    assert!(itself.answer(said(&greeting).as_bytes()).starts_with(b"HTTP/1.1 403 "));
}

#[test]
fn nothing_is_told_to_whoever_answers_as_an_original_or_out_of_turn() {
    let (secret, soft) = (guard(&[ONE], false), guard(&[ONE], true));
    let original = b"HTTP/1.1 404 Not Found\r\n\r\n";
    assert_eq!(dial(&secret, 1).received(original), UNPROVEN);
    assert_eq!(dial(&soft, 1).received(original), Step::Ended(Answered::Original));
    let mut challenge = Vec::new();
    write_challenge(&mut challenge, Word([2; 32]));
    let mut greeting = dial(&secret, 1);
    for byte in &challenge[..challenge.len() - 1] {
        assert_eq!(greeting.received(&[*byte]), Step::Wait);
    }
    assert_eq!(greeting.received(b"\n"), Step::Say);
    assert_eq!(greeting.received(&challenge), UNPROVEN, "a second challenge");
    assert_eq!(dial(&guard(&[], false), 1).received(&challenge), UNPROVEN, "it knows none");
    let more = [&challenge[..], b"HTTP/1.1 101 x\r\n\r\n"].concat();
    assert_eq!(dial(&secret, 1).received(&more), Step::Broken);
    assert_eq!(dial(&secret, 1).received(&[b'H'; 20_000]), Step::Broken);
}

#[test]
fn a_file_of_secrets_is_read_line_by_line() {
    let parse = |text: &str| Secrets::parse(text.as_bytes());
    let count = |text: &str| parse(text).map(|secrets| secrets.count());
    assert_eq!(count(&format!("# first\r\n\n  {ONE}\t\r\n#{TWO}\n{TWO}")), Ok(2));
    assert_eq!(parse(&format!("  {ONE} \n")), parse(ONE));
    let shown = format!("{:?}", parse(ONE).expect("a secret"));
    assert_eq!(shown, "1 secrets", "never its content");
    for (bytes, is_good) in [
        (SECRET_BYTES_MIN - 1, false),
        (SECRET_BYTES_MIN, true),
        (SECRET_BYTES_MAX, true),
        (SECRET_BYTES_MAX + 1, false),
    ] {
        let line = "x".repeat(bytes);
        let told = count(&format!("{ONE}\n{line}"));
        let expected = if is_good { Ok(2) } else { Err(SecretError::Length { line: 2, bytes }) };
        assert_eq!(told, expected, "{bytes} bytes");
    }
    assert_eq!(count(""), Err(SecretError::Empty));
    assert_eq!(count("# nothing\n \n"), Err(SecretError::Empty));
    assert_eq!(count(&format!("{ONE}\n").repeat(SECRETS_MAX)), Ok(SECRETS_MAX));
    assert_eq!(count(&format!("{ONE}\n").repeat(SECRETS_MAX + 1)), Err(SecretError::TooMany));
    assert_eq!(count(&"#".repeat(FILE_BYTES_MAX)), Err(SecretError::Empty));
    assert_eq!(count(&"#".repeat(FILE_BYTES_MAX + 1)), Err(SecretError::TooLong));
    assert_eq!(Secrets::parse(&[0xff; 40]).map(|secrets| secrets.count()), Ok(1), "any bytes");
}
