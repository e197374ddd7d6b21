//! The request without its body, as key extractors see it.

use http::{Request, header};
use tollgate_tower::Head;

#[test]
fn grpc_is_recognised_by_its_content_type() {
    for (content_type, expected) in [
        ("application/grpc", true),
        ("Application/gRPC", true),
        ("application/grpc+proto", true),
        ("application/grpc; charset=x", true),
        ("application/grpc ;x=y", true),
        ("application/grpc-web", true),
        ("application/grpc-web+json", true),
        ("application/grpc-web-text;x=y", true),
        ("application/grpc-webinar", false),
        ("application/grpcish", false),
        ("application/grp", false),
        ("application/json", false),
        ("", false),
    ] {
        let builder = Request::builder().header(header::CONTENT_TYPE, content_type);
        let request = builder.body(()).expect("a valid request");
        assert_eq!(Head::of(&request).is_grpc(), expected, "{content_type:?}");
    }
    assert!(!Head::of(&Request::new(())).is_grpc());
}
