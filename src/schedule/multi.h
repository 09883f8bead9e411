// Values on several devices.
//
// A node whose device is several ("CPU,CPU:1") stands for a value on each of them: the same one everywhere (COPY to the
// devices makes it), or each device's own part of something. UNSHARD says that parts are pieces of one value; SHARD takes
// the own piece of each device. This pass turns such a graph into graphs of one device each, with COPYs between them, so
// that scheduling never sees more than one device in a node.
//
// How it works. Nodes are visited in order. Each has a list of values, one a device, and the axis that they are pieces
// along (or none). A rule an op says along which axis its sources must be cut and along which the result then is; sources
// that are cut otherwise are cut from what every device has, or else gathered by COPYs. So every op works on every
// sharding; where the pieces fit nothing moves. A REDUCE over the cut axis is followed by an allreduce.
//
// Requirements: (1) what every device has has the same bits everywhere; (2) the bits are those of one device where no
// sum crosses the cut axis.
#pragma once
#include <span>
#include <vector>

#include "ir/uop.h"

namespace whit {

/// A value as graphs of one device.
struct Shards {
  std::vector<UOp> parts{};  ///< by device; of a node that has one device or none: a single one
  int64_t axis = -1;         ///< that they are pieces along; -1: each is the whole value
};

/// One result a root. Nodes that are realised are read from their buffers. errors: Runtime when an op has sources on
/// different devices
std::vector<Shards> split_devices(std::span<const UOp> roots);
/// The axis that the parts of a value are pieces along, or -1. cost: that of split_devices
int64_t shard_axis(const UOp& x);

/// The BUFFERs, one a device, that a BUFFER on several devices stands for; of another one, itself.
std::vector<UOp> buffer_parts(const UOp& buffer);
/// The value of a shape whose parts, cut along `axis` (-1: whole ones), a BUFFER holds.
UOp view_of_parts(const UOp& buffer, const Shape& shape, int64_t axis);
/// A fresh BUFFER that stands for such; one alone is that itself.
UOp join_buffers(std::span<const UOp> parts);

}  // namespace whit
