//! The end of an admitted request: when the body of its response ends, its cost is settled.
//!
//! ```text
//! Ruling::unsettled ─► Unsettled ─► RequestEnd, with the settings of SettleBy ─► in the Body, which drops it at its end
//! ```

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName};
use http_body::Frame;

/// What an admitted request leaves to be settled at its end, such as held units or a permit. The layer drops it when the
/// body of the response has ended or is dropped.
///
/// Unless it was settled by then, dropping it must leave the request charged: the units may have been used.
pub trait Unsettled: Send + Sync + 'static {
    /// The units that stay charged if nothing settles the request.
    fn units(&self) -> u64;

    /// Charges `actual` units instead of [`Unsettled::units`]. Zero releases all of them. The layer calls this at most
    /// once, and later drops the value.
    fn settle(&mut self, actual: u64);
}

type CostOfFields = dyn Fn(&HeaderMap) -> Option<u64> + Send + Sync;
pub(crate) type Count = dyn FnMut(&[u8]) -> Option<u64> + Send + Sync;
type NewCount = dyn Fn() -> Box<Count> + Send + Sync;

/// How a response tells its cost.
#[derive(Clone, Default)]
pub(crate) struct SettleBy {
    pub(crate) fields: Option<Arc<CostOfFields>>,
    pub(crate) count: Option<Arc<NewCount>>,
}

/// Settles a request when the body of its response ends.
pub struct RequestEnd {
    unsettled: Box<dyn Unsettled>,
    /// Reads the trailers. `None` once the request is settled.
    fields: Option<Arc<CostOfFields>>,
    /// Counts the data. `None` once the request is settled.
    count: Option<Box<Count>>,
    counted: Option<u64>,
    /// Whether the body has no more data.
    is_complete: bool,
}

impl SettleBy {
    /// Returns the end of a request whose response has these fields.
    pub(crate) fn end_of(&self, unsettled: Box<dyn Unsettled>, fields: &HeaderMap) -> RequestEnd {
        let mut end = RequestEnd {
            unsettled,
            fields: self.fields.clone(),
            count: None,
            counted: None,
            is_complete: false,
        };
        end.settle_by_fields(fields);
        // Without a cost in its fields, the response is read on.
        if end.fields.is_some() || self.fields.is_none() {
            end.count = self.count.as_ref().map(|new| new());
        }
        end
    }
}

impl RequestEnd {
    fn settle_by_fields(&mut self, fields: &HeaderMap) {
        if let Some(cost) = self.fields.as_ref().and_then(|cost| cost(fields)) {
            (self.fields, self.count, self.counted) = (None, None, None);
            self.unsettled.settle(cost);
        }
    }

    /// Reads a frame of the body and returns it.
    pub(crate) fn read<D: Buf + From<Bytes>>(
        &mut self,
        frame: Frame<D>,
        body: &impl http_body::Body,
    ) -> Frame<D> {
        if let Some(trailers) = frame.trailers_ref() {
            self.settle_by_fields(trailers);
        }
        let Some(count) = &mut self.count else { return frame };
        // A server may drop such a body without reading its end.
        self.is_complete = body.is_end_stream() || body.size_hint().exact() == Some(0);
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return frame,
        };
        let counted = if data.chunk().len() == data.remaining() {
            count(data.chunk())
        } else {
            let bytes = data.copy_to_bytes(data.remaining());
            let counted = count(&bytes);
            data = D::from(bytes);
            counted
        };
        self.counted = counted.or(self.counted);
        Frame::data(data)
    }

    /// Notes that the body has ended, or has failed.
    pub(crate) fn body_ended(&mut self, is_complete: bool) {
        self.is_complete = is_complete;
    }
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        if let Some(counted) = self.counted.take() {
            let least = if self.is_complete { 0 } else { self.unsettled.units() };
            self.unsettled.settle(counted.max(least));
        }
    }
}

impl fmt::Debug for RequestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RequestEnd");
        shown.field("units", &self.unsettled.units()).field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// Reads a field that occurs once, and whose value is a whole number.
pub(crate) fn number(fields: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?;
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    values.next().is_none().then(|| digits.parse().ok())?
}
