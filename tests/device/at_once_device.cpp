#include "tests/device/at_once_device.h"

#include <mutex>
#include <set>
#include <utility>

#include "moe/base/check.h"

namespace moe {
namespace {

/// Events whose last record was a mark: a GPU knows no other moment that it could hold from.
class Marks {
 public:
  void set(const Event& event, bool marked) {
    const std::lock_guard lock(mutex_);
    if (marked)
      events_.insert(&event);
    else
      events_.erase(&event);
  }
  bool has(const Event& event) {
    const std::lock_guard lock(mutex_);
    return events_.contains(&event);
  }

 private:
  std::mutex mutex_;
  std::set<const Event*> events_;
};

class AtOnceStream final : public Stream {
 public:
  AtOnceStream(std::unique_ptr<Stream> queue, std::shared_ptr<Failure> failure, std::shared_ptr<Marks> marks)
      : queue_(std::move(queue)), failure_(std::move(failure)), marks_(std::move(marks)) {}

  void launch(std::function<void(void*)> work) override {
    if (failure_->failed()) return;
    try {
      work(nullptr);
    } catch (...) {
      failure_->set(std::current_exception());
    }
  }
  bool calls_work_immediately() const override { return true; }
  void record(Event& event) override {
    marks_->set(event, false);
    queue_->record(event);
  }
  void wait(Event& event) override { queue_->wait(event); }
  void mark(Event& since) override {
    marks_->set(since, true);
    queue_->mark(since);
  }
  void hold(Event& since, Pace pace) override {
    if (pace.at_least_s > 0 && !failure_->failed())
      require<WrongResult>(marks_->has(since), "hold() from an event that was recorded, expected a marked one");
    queue_->hold(since, pace);
  }
  void copy(Copy copy) override { queue_->copy(copy); }
  void move(Moves moves) override { queue_->move(std::move(moves)); }
  std::unique_ptr<Event> make_event() override { return queue_->make_event(); }
  void synchronize() override { queue_->synchronize(); }

 private:
  const std::unique_ptr<Stream> queue_;
  const std::shared_ptr<Failure> failure_;
  const std::shared_ptr<Marks> marks_;
};

class AtOnceDevice final : public Device {
 public:
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure,
                                      StreamPriority urgency) override {
    if (!failure) failure = std::make_shared<Failure>();
    return std::make_unique<AtOnceStream>(cpu_->make_stream(name, failure, urgency), failure, marks_);
  }
  std::unique_ptr<Event> make_event() override { return cpu_->make_event(); }
  Memory make_memory(int64_t bytes) override { return cpu_->make_memory(bytes); }
  Memory make_host_memory(int64_t bytes) override { return cpu_->make_host_memory(bytes); }

 private:
  const std::unique_ptr<Device> cpu_ = make_cpu_device();
  const std::shared_ptr<Marks> marks_ = std::make_shared<Marks>();
};

}  // namespace

std::unique_ptr<Device> make_at_once_device() { return std::make_unique<AtOnceDevice>(); }

}  // namespace moe
