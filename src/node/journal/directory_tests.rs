//! Data directories as a start may find them.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::node::journal::backup::{Snapshot, Target};
use crate::node::journal::reading::Files;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn node(path: &Path) -> DataDirectory {
    DataDirectory::create_or_open(path, "10.0.0.1:7253").expect("it can be used")
}

fn refused(path: &Path, node: &str) -> String {
    DataDirectory::create_or_open(path, node).expect_err("it cannot be used").to_string()
}

fn refused_tool(path: &Path) -> String {
    DataDirectory::open_existing(path).expect_err("it cannot be used").to_string()
}

#[test]
fn a_directory_keeps_its_identity() {
    let folder = folder();
    let path = folder.path().join("new/data");
    let identity = node(&path).identity().clone();
    assert_eq!(identity.node, "10.0.0.1:7253");
    assert_eq!(*node(&path).identity(), identity);
    assert_eq!(*DataDirectory::open_existing(&path).expect("a tool").identity(), identity);
    assert_ne!(node(&folder.path().join("other")).identity().journal, identity.journal);
    let told = refused(&path, "10.0.0.2:7253");
    assert!(told.contains("of node 10.0.0.1:7253, and this node is 10.0.0.2:7253"), "{told}");
}

#[test]
fn generations_appear_and_disappear_in_their_order() {
    let folder = folder();
    let data = node(folder.path());
    assert_eq!(data.generations().expect("listed"), []);
    let first = data.begin_generation(2).expect("begun");
    let second = data.begin_generation(3).expect("begun");
    assert_eq!((first.name().as_str(), second.name().as_str()), ("0001-2", "0002-3"));
    assert_eq!(data.generations().expect("listed"), [first, second]);
    let shards: Vec<PathBuf> = data.shards(second).map(|shard| shard.path).collect();
    assert_eq!(shards[2], folder.path().join("0002-3/2"));
    assert!(shards.iter().all(|shard| shard.is_dir()));
    data.remove_generation(first).expect("removed");
    assert_eq!(data.generations().expect("listed"), [second]);
    assert_eq!(data.begin_generation(2).expect("begun").name(), "0003-2");
}

#[test]
fn generations_are_moved_out_of_the_way_of_every_reader() {
    let folder = folder();
    let data = node(folder.path());
    let (first, second) = (data.begin_generation(1), data.begin_generation(2));
    let (first, second) = (first.expect("begun"), second.expect("begun"));
    let aside = folder.path().join("damaged-20261120T190423Z");
    let moved = data.move_aside(&[first], aside.clone()).expect("moved");
    assert_eq!(moved, aside);
    assert!(aside.join(first.name()).join("0").is_dir());
    assert_eq!(data.generations().expect("listed"), [second]);
}

#[test]
fn a_backup_is_told_from_a_whole_journal() {
    let folder = folder();
    let data = node(folder.path());
    assert!(data.identity_path().is_file());
    assert!(!data.is_incomplete());
    fs::write(folder.path().join(INCOMPLETE), "").expect("written");
    assert!(data.is_incomplete());
}

#[test]
fn what_was_cut_off_is_cleared_and_what_is_not_ours_stays() {
    let folder = folder();
    drop(node(folder.path()));
    let kept =
        ["1-2", "0001-0", "0001-257", "0000-1", "+001-2", "damaged-2026", "x.tmp", "a.removed"];
    for name in kept.into_iter().chain(["0007-2.tmp", "0003-1.removed"]) {
        fs::create_dir_all(folder.path().join(name).join("0")).expect("made");
    }
    fs::write(folder.path().join("0005-1"), "a file").expect("written");
    let data = node(folder.path());
    assert_eq!(data.generations().expect("listed"), []);
    assert!(kept.iter().all(|name| folder.path().join(name).is_dir()));
    assert!(!folder.path().join("0007-2.tmp").exists());
    assert!(!folder.path().join("0003-1.removed").exists());
}

#[test]
fn files_of_a_shard_are_told_by_their_names() {
    let folder = folder();
    let data = node(folder.path());
    let generation = data.begin_generation(1).expect("begun");
    let shard = data.shard(generation, 0);
    let segment = |number: u64| segment_name(SegmentNumber(number));
    for name in [&segment(0x1f), &segment(2), "1.segment", "spare-3.tmp", "x", "\u{e9}.segment"] {
        fs::write(shard.path.join(name), [0; 5]).expect("written");
    }
    for number in [0, SEGMENT_NUMBER_MAX + 1, u64::MAX] {
        fs::write(shard.path.join(segment(number)), "").expect("written");
    }
    fs::write(shard.path.join("000000000000001F.segment"), "").expect("written");
    fs::create_dir(shard.path.join(segment(3))).expect("made");
    std::os::unix::fs::symlink("nowhere", shard.path.join(segment(4))).expect("made");
    let found = shard.segments().expect("listed").expect("there");
    let numbers: Vec<u64> = found.iter().map(|file| file.number.0).collect();
    assert_eq!(numbers, [2, 0x1f]);
    assert_eq!((found[0].bytes, &found[0].path), (5, &shard.segment_path(SegmentNumber(2))));
    let no_files = shard.no_files().expect("listed");
    let numbered = |number, what| (SegmentNumber(number), what);
    assert_eq!(no_files, [numbered(3, "a directory"), numbered(4, "a link that leads nowhere")]);
    fs::remove_dir_all(&shard.path).expect("removed");
    assert_eq!(shard.segments().expect("nothing is wrong"), None);
    assert_eq!(shard.no_files().expect("nothing is wrong"), []);
}

#[test]
fn what_is_read_of_a_shard_is_what_stands_in_its_directory() {
    let folder = folder();
    let data = node(folder.path());
    let shard = data.shard(data.begin_generation(2).expect("begun"), 1);
    let segment = |number| shard.segment_path(SegmentNumber(number));
    assert_eq!(Files::list(&shard).expect("listed"), Some(Vec::new()));
    fs::write(segment(1), [7; 5]).expect("written");
    fs::create_dir(segment(2)).expect("made");
    for (number, to) in [(3, folder.path().join("absent")), (4, segment(4))] {
        std::os::unix::fs::symlink(to, segment(number)).expect("a link");
    }
    let files = Files::list(&shard).expect("listed").expect("it is there");
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!((file.number, &file.path, file.bytes), (SegmentNumber(1), &segment(1), 5));
    assert_eq!(shard.beginning(file).expect("read"), [7; 5]);
    let (folded, link) = ("a directory", "a link that leads nowhere");
    let no_files = [(2, folded), (3, link), (4, link)];
    let no_files = no_files.map(|(number, what)| (SegmentNumber(number), what));
    assert_eq!(Files::no_files(&shard).expect("listed"), no_files);
    let identity = data.identity();
    assert_eq!(Files::owner(&shard), (identity.journal, &*identity.node));
    assert_eq!((Files::shard(&shard), Files::directory(&shard)), ((1, 2), shard.path.clone()));
}

#[test]
fn one_process_uses_it_at_a_time() {
    let folder = folder();
    let held = node(folder.path());
    let told = refused_tool(folder.path());
    assert!(told.contains(&format!("in use by process {}", std::process::id())), "{told}");
    assert!(told.contains("--data-dir"), "{told}");
    drop(held);
    DataDirectory::open_existing(folder.path()).expect("nobody has it");
}

#[test]
fn what_is_no_data_directory_is_told() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    assert!(refused(&file, "a").contains("is not a directory"));
    assert!(refused(&file.join("below"), "a").contains("is not a directory"));
    assert!(refused_tool(&file).contains("is not a directory"));
    assert!(refused_tool(&folder.path().join("absent")).starts_with("there is no "));
    assert!(refused_tool(folder.path()).contains("is no data directory"));
    assert!(!folder.path().join("lock").exists(), "a tool leaves nothing behind");
}

#[test]
fn a_directory_that_was_made_for_something_else_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("etc");
    fs::create_dir(&path).expect("made");
    fs::write(path.join("passwd"), "root").expect("written");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    for path in [&path, &link] {
        let told = refused(path, "a");
        assert!(told.contains("has passwd in it. Name an empty directory"), "{told}");
    }
    assert_eq!(fs::read_dir(&path).expect("listed").count(), 1, "nothing is put into it");
    fs::remove_file(path.join("passwd")).expect("removed");
    for fine in ["lost+found", ".snapshot", "0001-2.tmp"] {
        fs::create_dir(path.join(fine)).expect("made");
    }
    fs::write(path.join("destinations"), "").expect("written");
    node(&link);
}

#[test]
fn what_everybody_may_write_to_is_closed_and_what_is_made_is_the_owners_alone() {
    let folder = folder();
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
    node(&open);
    assert_eq!(mode(&open), 0o775);
    let new = folder.path().join("new/data");
    node(&new);
    assert_eq!(mode(&new), 0o700);
}

#[test]
fn a_planted_link_is_not_written_through() {
    let folder = folder();
    let (path, precious) = (folder.path().join("data"), folder.path().join("precious"));
    fs::write(&precious, "precious").expect("written");
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o644)).expect("set");
    fs::create_dir(&path).expect("made");
    std::os::unix::fs::symlink(&precious, path.join(NODE_ASIDE)).expect("a link");
    let data = node(&path);
    let shard = data.shard(data.begin_generation(1).expect("begun"), 0);
    drop(data);
    let planted = shard.segment_path(SegmentNumber(1));
    std::os::unix::fs::symlink(&precious, planted).expect("a link");
    node(&path);
    assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
    let mode = fs::metadata(&precious).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "it is not the node's to close");
}

#[test]
fn a_damaged_identity_says_how_to_mend_it() {
    let folder = folder();
    let data = node(folder.path());
    let identity = data.identity().clone();
    let shard = data.shard(data.begin_generation(1).expect("begun"), 0);
    drop(data);
    let file = folder.path().join(NODE);
    let good = fs::read_to_string(&file).expect("read");
    fs::write(&file, good.replace("10.0.0.1", "10.0.0.3")).expect("written");
    let told = refused(folder.path(), "10.0.0.1:7253");
    assert!(told.contains("its checksum does not fit. Restore it from a backup"), "{told}");
    fs::write(shard.segment_path(SegmentNumber(1)), first_page(&identity)).expect("written");
    let told = refused(folder.path(), "10.0.0.1:7253");
    let (_, remedy) = told.split_once("make this its text:\n").expect("a remedy");
    fs::write(&file, remedy).expect("written");
    assert_eq!(*node(folder.path()).identity(), identity, "as the remedy says");
    fs::remove_file(&file).expect("removed");
    assert!(refused(folder.path(), "10.0.0.1:7253").contains("it is missing, and segments"));
    for (text, told) in [("format = 2", "has format 2"), ("\u{0}", "damaged"), ("", "damaged")] {
        fs::write(&file, text).expect("written");
        assert!(refused_tool(folder.path()).contains(told), "{text}");
    }
    fs::write(&file, vec![b'#'; 1 << 20]).expect("written");
    assert!(refused_tool(folder.path()).contains("damaged"));
}

fn first_page(identity: &Identity) -> Vec<u8> {
    use crate::journal::entry::State;
    use crate::journal::page::Stamp;
    use crate::journal::writer::{Continuation, Owner, Sizes, Writer};
    let owner =
        Owner { journal: identity.journal, name: identity.node.clone(), shard: 0, shards: 1 };
    let sizes = Sizes { segment_blocks: 4, batch_bytes: 4_096 };
    let mut writer = Writer::new(owner, sizes, State::default(), Continuation::default());
    let segment = writer.wants_segment().expect("it has none");
    writer.prepared(segment);
    writer.append_state(State::default());
    writer.begin_write(Stamp::default());
    writer.next_piece().expect("a write is under way").bytes.to_vec()
}

#[test]
fn a_directory_of_another_user_says_so() {
    let folder = folder();
    let path = folder.path().join("data");
    drop(node(&path));
    let locked = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    locked(0o000).expect("it is ours");
    let told = DataDirectory::open_existing(&path).err().map(|error| error.to_string());
    locked(0o700).expect("it is ours");
    // The superuser may do everything.
    if let Some(told) = told {
        assert!(told.contains("Permission denied") && told.contains("its owner"), "{told}");
    }
    let told = |kind: ErrorKind| unusable("write", &path)(io::Error::from(kind)).to_string();
    assert!(told(ErrorKind::ReadOnlyFilesystem).contains("mounted read-only"));
    assert!(told(ErrorKind::PermissionDenied).contains("its owner"));
}

#[test]
fn files_that_others_may_read_are_closed_to_them_and_what_is_not_ours_stays() {
    let folder = folder();
    let path = folder.path().join("data");
    let data = node(&path);
    let generation = data.begin_generation(2).expect("begun");
    let shard = data.shard(generation, 1).path;
    drop(data);
    let aside = path.join("damaged-20261120T190423Z/0001-2/0");
    fs::create_dir_all(&aside).expect("made");
    let segment = segment_name(SegmentNumber(1));
    let ours = [path.join(NODE), shard.join(&segment)];
    let ours = [&ours[..], &[shard.join("spare-3.tmp"), aside.join(&segment)]].concat();
    let others = [path.join("notes"), shard.join("x.txt"), folder.path().join("1.segment")];
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&ours[0]), 0o600, "made so");
    for path in ours.iter().chain(&others) {
        File::options().append(true).create(true).open(path).expect("made");
        fs::set_permissions(path, fs::Permissions::from_mode(0o664)).expect("ours");
    }
    // A tool changes nothing.
    drop(DataDirectory::open_existing(&path).expect("a tool"));
    assert!(ours.iter().all(|path| mode(path) == 0o664));
    drop(node(&path));
    for path in &ours {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    assert!(others.iter().all(|path| mode(path) == 0o664));
    assert_eq!(mode(&shard) & 0o700, 0o700, "directories stay as they are");
}

#[test]
fn what_is_left_of_a_backup_that_was_cut_off_is_known_at_the_next_start() {
    let (folder, elsewhere) = (folder(), folder());
    let data = node(folder.path());
    assert_eq!(data.cut_off(), None);
    let generation = data.begin_generation(1).expect("begun");
    let target = Target::take(&elsewhere.path().join("backup"), folder.path()).expect("new");
    let snapshot = Snapshot::begin(&data, generation).expect("made");
    assert_eq!(data.cut_off(), None, "nothing was written");
    snapshot.note_goal(&target);
    assert_eq!(data.cut_off(), Some(elsewhere.path().join("backup.unfinished")));
    // As if the process ended here.
    std::mem::forget((snapshot, target));
    drop(data);
    assert_eq!(node(folder.path()).cut_off(), None, "it is told once");
}
