//! Files for threads without a ring: what is made is whole or absent, and a folder has one owner.

use std::io::ErrorKind;
use std::path::Path;

use chronos::ring::{DirectoryLock, boot_id, create_zeroed, measure_sync, sync_directory};

use super::disk::folder;
use super::harness::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is there");
    entries.map(|entry| entry.expect("named").file_name().into_string().expect("plain")).collect()
}

#[test]
fn a_file_of_zeros_has_its_length() {
    let folder = folder();
    for bytes in [0, 1, 4096, (1 << 20) + 4097, 3 << 20] {
        let path = folder.path().join(bytes.to_string());
        create_zeroed(&path, bytes).expect("there is room");
        let found = std::fs::read(&path).expect("it is there");
        assert_eq!(found.len() as u64, bytes);
        assert!(found.iter().all(|&byte| byte == 0));
    }
    sync_directory(folder.path()).expect("it is a folder");
}

/// No file system has a file of 2^63 bytes.
#[test]
fn a_file_of_zeros_that_cannot_be_made_leaves_nothing() {
    let folder = folder();
    for bytes in [i64::MAX as u64, u64::MAX] {
        create_zeroed(&folder.path().join("huge"), bytes).expect_err("no disk is that large");
        assert_eq!(names(folder.path()), [""; 0]);
    }
    let nowhere = folder.path().join("absent").join("zeros");
    let error = create_zeroed(&nowhere, 1).expect_err("its folder is not there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    sync_directory(&folder.path().join("absent")).expect_err("it is not there");
}

#[test]
fn a_file_that_is_there_already_stays() {
    let folder = folder();
    let path = folder.path().join("kept");
    std::fs::write(&path, b"kept").expect("there is room");
    let error = create_zeroed(&path, 4096).expect_err("it is there");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"kept");
}

#[test]
fn a_folder_has_one_owner_and_tells_its_number() {
    let folder = folder();
    assert_eq!(DirectoryLock::holder(folder.path()), None);
    let lock = DirectoryLock::take(folder.path()).expect("it is a folder").expect("it is free");
    assert!(DirectoryLock::take(folder.path()).expect("it is a folder").is_none());
    assert_eq!(DirectoryLock::holder(folder.path()), Some(std::process::id()));
    drop(lock);
    // The number of the owner before was longer.
    std::fs::write(folder.path().join("lock"), "12345678901234567890\n").expect("it is free");
    assert_eq!(DirectoryLock::holder(folder.path()), None);
    let _lock = DirectoryLock::take(folder.path()).expect("it is a folder").expect("it is free");
    assert_eq!(DirectoryLock::holder(folder.path()), Some(std::process::id()));
    DirectoryLock::take(&folder.path().join("absent")).expect_err("it is not there");
}

/// The kernel gives a lock up with the process, however it ends.
#[test]
fn a_folder_is_free_when_its_owner_is_gone() {
    const NAME: &str = "files::a_folder_is_free_when_its_owner_is_gone";
    if let Some(taken) = std::env::var_os("TAKEN").filter(|_| is_child(NAME)) {
        let lock = DirectoryLock::take(Path::new(&taken)).expect("it is a folder");
        std::mem::forget(lock.expect("it is free"));
        return;
    }
    let folder = folder();
    let path = folder.path().to_str().expect("plain");
    run_child(NAME, &format!("export TAKEN='{path}'"));
    let child = DirectoryLock::holder(folder.path()).expect("the child has told its number");
    assert_ne!(child, std::process::id());
    assert!(DirectoryLock::take(folder.path()).expect("it is a folder").is_some());
}

#[test]
fn a_boot_has_one_number() {
    assert_ne!(boot_id(), 0, "Linux has a boot id");
    assert_eq!(boot_id(), boot_id());
}

#[test]
fn a_disk_is_timed_without_a_trace() {
    let folder = folder();
    let times = measure_sync(folder.path(), 5).expect("there is room");
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| !time.is_zero()), "{times:?}");
    assert_eq!(names(folder.path()), [""; 0]);
    measure_sync(&folder.path().join("absent"), 1).expect_err("it is not there");
}
