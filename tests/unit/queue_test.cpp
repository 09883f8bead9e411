#include "runtime/queue.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/flags.h"
#include "error_of.h"
#include "runtime/buffer.h"
#include "runtime/device.h"
#include "whit/tensor.h"

namespace whit {
namespace {

Device& cpu(int i) { return Device::get("CPU:" + std::to_string(i)); }

// Two devices are open, so that both have queues.
// Every device tells its error; the first is raised.
void wait_for_all() {
  std::exception_ptr first;
  for (Device* const device : open_devices()) {
    try {
      device->synchronize();
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

class Queues : public testing::Test {
 protected:
  Device &a = cpu(1), &b = cpu(2);
  BufferPtr buffer(Device& on) { return Buffer::make(on.name(), 8); }
  static int64_t& number(const BufferPtr& x) { return *static_cast<int64_t*>(x->handle()); }
  static int64_t read(const BufferPtr& x) {
    int64_t n = 0;
    x->copyout(&n, 8);
    return n;
  }
};

TEST_F(Queues, WorkOfTwoDevicesAndOfTheHostGoesOnAtTheSameTime) {
  const BufferPtr x = buffer(a), y = buffer(b);
  std::promise<void> from_host, from_b;
  const BufferUse on_a[] = {{x.get(), true}}, on_b[] = {{y.get(), true}};
  enqueue(a, on_a, "first", [&] {
    from_host.get_future().wait();  // of what the host does after this is given
    from_b.get_future().wait();     // and of what another device is given later
    number(x) = 5;
  });
  enqueue(b, on_b, "second", [&] {
    number(y) = 6;
    from_b.set_value();
  });
  EXPECT_EQ(read(y), 6);  // waits for b alone
  from_host.set_value();
  EXPECT_EQ(read(x), 5);
}

TEST_F(Queues, ABufferIsReadAndWrittenInTheOrderOfTheCalls) {
  std::mt19937 random(7);
  Device* const devices[] = {&a, &b, &cpu(3), &Device::get("REF")};  // the last one has no queue
  std::vector<BufferPtr> buffers;
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 12; ++i) {
    buffers.push_back(buffer(*devices[i % 4]));
    expected.push_back(i);
    buffers.back()->copyin(&i, 8);
  }
  for (int step = 0; step < 3000; ++step) {
    const size_t to = random() % 12, from = random() % 12;
    const BufferPtr t = buffers[to], f = buffers[from];
    const int64_t factor = static_cast<int64_t>(random() % 5);
    const BufferUse uses[] = {{t.get(), true}, {f.get(), false}};
    enqueue(t->device(), uses, "step", [t, f, factor] { number(t) = number(t) * 3 + number(f) * factor; });
    expected[to] = static_cast<int64_t>(static_cast<uint64_t>(expected[to]) * 3 + static_cast<uint64_t>(expected[from] * factor)) % (1 << 20);
    const BufferUse own[] = {{t.get(), true}};
    enqueue(t->device(), own, "step", [t] { number(t) %= 1 << 20; });
    if (step % 100 == 0) {
      EXPECT_EQ(read(buffers[from]), expected[from]);
    }
    if (step % 150 == 0) buffers[from]->copyin(&(expected[from] = step), 8);  // waits for readers
  }
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(read(buffers[i]), expected[i]) << i;
}

TEST_F(Queues, WorkOnOtherBytesOfABufferDoesNotWait) {
  const BufferPtr x = Buffer::make(a.name(), 16);
  const BufferPtr low = Buffer::view(x, 0, 8), high = Buffer::view(x, 8, 8);
  std::promise<void> go;
  const BufferUse writes_low[] = {{low.get(), true}}, writes_high[] = {{x.get(), true, 8, 8}}, reads_all[] = {{x.get(), false}};
  enqueue(a, writes_low, "low", [&] {
    go.get_future().wait();
    number(low) = 1;
  });
  enqueue(b, writes_high, "high", [&] { number(high) = 2; });
  EXPECT_EQ(read(high), 2);
  int64_t sum = 0;
  enqueue(b, reads_all, "both", [&] { sum = number(low) + number(high); });
  go.set_value();
  b.synchronize();
  EXPECT_EQ(sum, 3);
}

TEST_F(Queues, AnErrorSurfacesAtTheNextWaitAndAtReadsOfWhatWasNotComputed) {
  const BufferPtr x = buffer(a), y = buffer(b), other = buffer(a);
  const BufferUse writes_x[] = {{x.get(), true}}, from_x[] = {{y.get(), true}, {x.get(), false}}, writes_other[] = {{other.get(), true}};
  enqueue(a, writes_x, "kernel k", [] { raise(ErrorKind::Memory, "there is none"); });
  enqueue(b, from_x, "kernel after k", [] { FAIL() << "what it reads was not computed"; });
  enqueue(a, writes_other, "kernel beside", [&] { number(other) = 3; });
  const std::string text = "kernel k on CPU:1: there is none";
  EXPECT_EQ(error_of([&] { b.synchronize(); }), text);
  EXPECT_EQ(error_of([&] { a.synchronize(); }), text);
  EXPECT_NO_THROW(wait_for_all());  // each device has told it
  EXPECT_EQ(error_of([&] { read(y); }), text);
  EXPECT_EQ(error_of([&] { read(x); }), text);
  EXPECT_EQ(read(other), 3);
  int64_t n = 4;
  x->copyin(&n, 8);  // what was not computed is replaced
  enqueue(b, from_x, "again", [&] { number(y) = number(x); });
  EXPECT_EQ(read(y), 4);
}

TEST_F(Queues, WorkThatFailsInATensorGraph) {
  // More memory than an address space has is refused when the kernel's turn comes.
  Tensor huge = (Tensor::empty({int64_t{1} << 47}, {.device = "CPU:1"}) + 1.0f).to("CPU:2");
  EXPECT_NE(error_of([&] {
              huge.realize();
              wait_for_all();
            }).find("Allocation of"),
            std::string::npos);
  EXPECT_EQ((Tensor::from<float>({1, 2}, 2, {.device = "CPU:1"}) + 1.0f).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST_F(Queues, AForkedChildWorksInItsOwnThread) {
  const Tensor x = Tensor::from<float>({1, 2}, 2, {.device = "CPU:1"}).realize();
  const Tensor y = (x.to("CPU:2") * 2.0f).realize();  // the fork waits for it
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const std::vector<float> got = (y.to("CPU:1") + x).to_vector<float>();
    _exit(got == std::vector<float>{3, 6} ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Queues, OneDeviceAloneHasNoneButOnRequest) {
  {
    const FlagScope never("ASYNC", int64_t{0});
    EXPECT_EQ(a.queue(), nullptr);
  }
  EXPECT_NE(a.queue(), nullptr);
}

}  // namespace
}  // namespace whit
