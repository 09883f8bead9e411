// Interning, destruction, keys, walks.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "ir/build.h"
#include "ir/text.h"

using namespace whit;

namespace {

UOp variable(const char* v) { return UOp::make(Op::Variable, DType::Int32, {}, Arg::list({v, 0, 100})); }

TEST(IrUOp, EqualNodesAreOnePointer) {
  const UOp a = variable("a"), b = variable("b");
  EXPECT_EQ(a + b, a + b);
  EXPECT_FALSE(a + b == b + a);                                             // what a user built keeps its order
  EXPECT_EQ(constant(DType::Int32, 5) + a, a + constant(DType::Int32, 5));  // but constants go right
  EXPECT_FALSE(constant(DType::Int32, 5) == constant(DType::Int64, 5));
  EXPECT_FALSE(constant(DType::Float32, 0.0) == constant(DType::Float32, -0.0));
  EXPECT_EQ(constant(DType::Float32, NAN), constant(DType::Float32, NAN));
  EXPECT_EQ(constant(DType::Int8, 257), constant(DType::Int8, 1));
  EXPECT_EQ(constant(DType::Float32, 0.1), constant(DType::Float32, static_cast<double>(0.1f)));
}

TEST(IrUOp, NodesGoWithTheirLastUserAndComeBackTheSame) {
  const int64_t before = live_nodes();
  for (int i = 0; i < 3; ++i) {
    const UOp u = variable("revived") * variable("other");
    EXPECT_EQ(live_nodes(), before + 3);
    UOp second = variable("revived");
    EXPECT_EQ(second, u.src(0));
  }
  EXPECT_EQ(live_nodes(), before);
}

TEST(IrUOp, AChainOf100kNodes) {
  const int64_t before = live_nodes();
  {
    UOp u = variable("x");
    for (int i = 0; i < 100'000; ++i) u = u + constant(DType::Int32, i % 10 + 1);
    EXPECT_EQ(toposort(u).size(), 100'011u);
    const std::string text = to_text(u);
    EXPECT_EQ(parse_text(text), u);
    const Key128 key = u.key();
    const UOp y = variable("y");
    const UOp other = substitute(u, {{variable("x").node(), y}});
    EXPECT_FALSE(other.key() == key);
    EXPECT_EQ(substitute(other, {{y.node(), variable("x")}}), u);
  }
  EXPECT_EQ(live_nodes(), before);
}

TEST(IrUOp, EightThreadsMakeAndDestroyTheSameNodes) {
  const int64_t before = live_nodes();
  constexpr int kThreads = 8, kRounds = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kRounds; ++round) {
        const UOp x = variable("shared");
        UOp u = x;
        for (int i = 0; i < 30; ++i) {
          u = u * 3 + static_cast<int64_t>(random() % 3);
          ASSERT_EQ(u + x, u + x);
        }
        (void)u.key();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(live_nodes(), before);
}

TEST(IrUOp, ThreadsThatHoldAnEqualGraphHoldTheSamePointer) {
  constexpr int kThreads = 4;
  std::vector<UOp> results(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&results, t] {
      UOp u = variable("p");
      for (int i = 0; i < 2000; ++i) u = u * 3 + i;
      results[static_cast<size_t>(t)] = u;
    });
  for (std::thread& t : threads) t.join();
  for (const UOp& u : results) EXPECT_EQ(u, results[0]);
}

TEST(IrUOpKey, IgnoresBufferIdsAndNothingElse) {
  const auto graph = [](const UOp& a, const UOp& b, double c, int64_t shift) {
    return shrink(a + b * constant(DType::Float32, c), Dims{shift, shift + 2});
  };
  const auto buf = [](int64_t n, const char* device) { return buffer(DType::Float32, n, device); };
  const UOp x = buf(8, "CPU"), y = buf(8, "CPU");
  const Key128 key = graph(x, y, 2, 1).key();
  EXPECT_EQ(graph(buf(8, "CPU"), buf(8, "CPU"), 2, 1).key(), key);
  EXPECT_FALSE(graph(x, y, 2.5, 1).key() == key);
  EXPECT_FALSE(graph(x, y, 2, 2).key() == key);
  EXPECT_FALSE(graph(buf(9, "CPU"), buf(9, "CPU"), 2, 1).key() == key);
  EXPECT_FALSE(graph(buf(8, "NULL"), buf(8, "NULL"), 2, 1).key() == key);
  EXPECT_FALSE((x + y).key() == (x - y).key());
}

TEST(IrUOpKey, ArgumentKindsAreToldApart) {
  const auto key = [](Arg arg) { return UOp::make(Op::Sink, DType::Void, {}, std::move(arg)).key().hex(); };
  const int64_t one[] = {1};
  const std::vector<std::string> keys = {key({}),
                                         key(1),
                                         key(1.0),
                                         key(true),
                                         key("1"),
                                         key(Arg(std::span<const int64_t>(one))),
                                         key(Arg::list({1})),
                                         key(Arg::invalid()),
                                         key(0.0),
                                         key(-0.0),
                                         key(0),
                                         key(false),
                                         key(""),
                                         key(Arg::list({})),
                                         key(Arg::list({"a", "b"})),
                                         key(Arg::list({"ab", ""}))};
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
}

TEST(IrUOp, RangesAreOpenUntilTheyEnd) {
  const UOp i = range(4, 0, AxisType::Weak), j = range(5, 1, AxisType::Weak), k = range(6, 2, AxisType::Reduce);
  const UOp u = i * 5 + j;
  ASSERT_EQ(u.ranges().size(), 2u);
  EXPECT_EQ(u.ranges()[0], i.node());
  EXPECT_EQ(u.ranges()[1], j.node());
  const UOp over[] = {k};
  const UOp sum = reduce(u + k, "add", over);
  EXPECT_EQ(sum.ranges().size(), 2u);
  EXPECT_FALSE(sum.depends_on(k));
  EXPECT_TRUE(sum.depends_on(i));
  EXPECT_TRUE(constant(DType::Int32, 1).ranges().empty());
}

TEST(IrUOp, DevicesComeFromSources) {
  const UOp b = buffer(DType::Float32, 4, "CPU");
  const UOp u = constant(DType::Float32, 1.0) + b;
  EXPECT_EQ(device_name(u->device), "CPU");
  EXPECT_EQ(device_name(UOp::make(Op::Copy, DType::Float32, {u}, "NULL")->device), "NULL");
  EXPECT_EQ(device_name(constant(DType::Float32, 1.0)->device), "");
}

TEST(IrUOp, SideDataStaysWithTheNode) {
  const int64_t before = live_nodes();
  {
    const UOp b = buffer(DType::Float32, 4, "CPU");
    EXPECT_EQ(payload(b), nullptr);
    const auto p = std::make_shared<int>(7);
    set_payload(b, p);
    EXPECT_EQ(payload(b), p);
    EXPECT_EQ(payload_address(b), p.get());
    EXPECT_EQ(p.use_count(), 2);
    const UOp u = b + b;
    set_realized(u, b);
    EXPECT_EQ(realized(u), b);
    set_realized(u, reshape(b, Dims{2, 2}));
    EXPECT_EQ(realized(u), reshape(b, Dims{2, 2}));
  }
  EXPECT_EQ(live_nodes(), before);
}

}  // namespace
