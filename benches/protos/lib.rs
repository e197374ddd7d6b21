//! Compiles the files `*.proto` of the service again. `cargo test -p tollgate-protos` compares the result with the compiled
//! descriptions in the repository, by which the tests of the service read its messages.
//!
//! This is a package of its own, because the compiler of these files takes ten seconds of processor time to build.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The compiled descriptions, and the files that they describe.
    const DESCRIPTIONS: [(&str, [&str; 2]); 2] = [
        ("src/proto/descriptors.bin", ["rls.proto", "kuadrant.proto"]),
        ("tests/service/discovery.bin", ["discovery.proto", "rules.proto"]),
    ];

    fn in_serve(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/serve").join(path)
    }

    fn compiled(files: [&str; 2]) -> Vec<u8> {
        let mut compiler = protox::Compiler::new([in_serve("src/proto")]).expect("the folder exists");
        compiler.include_imports(true).include_source_info(false);
        compiler.open_files(files).expect("the files are valid");
        compiler.encode_file_descriptor_set()
    }

    #[test]
    fn descriptions_equal_compiled_files() {
        for (path, files) in DESCRIPTIONS {
            let same = fs::read(in_serve(path)).is_ok_and(|bytes| bytes == compiled(files));
            assert!(
                same,
                "{path} is old: run `cargo test -p tollgate-protos write_descriptions -- --ignored`"
            );
        }
    }

    #[test]
    #[ignore = "writes files of the repository"]
    fn write_descriptions() {
        for (path, files) in DESCRIPTIONS {
            fs::write(in_serve(path), compiled(files)).expect("the folder is writable");
        }
    }
}
