// Plays allocations through TensorFlow's own allocator, to compare ours with it in the same run.
//
// `bfc replay OPERATIONS LIMIT ROUNDS THREADS` reads lines `+id,bytes` and `-id`; what is refused is counted, and
// never freed. `bfc grow BYTES STEP` grows to so many bytes, and times every allocation. The memory is
// address space that nobody touches. One line of JSON each.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "xla/tsl/framework/bfc_allocator.h"

namespace {

using Clock = std::chrono::steady_clock;

class Addresses : public tsl::SubAllocator {
 public:
  explicit Addresses(std::atomic<size_t>* peak) : SubAllocator({}, {}), peak_(peak) {}

  void* Alloc(size_t, size_t bytes, size_t* received) override {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    *received = bytes;
    held_ += bytes;
    *peak_ = std::max(peak_->load(), held_);
    return at;
  }

  void Free(void* at, size_t bytes) override {
    munmap(at, bytes);
    held_ -= bytes;
  }

  bool SupportsCoalescing() const override { return false; }

 private:
  size_t held_ = 0;
  std::atomic<size_t>* peak_;
};

struct Operation {
  size_t id;
  size_t bytes;  // 0 to free
};

std::vector<Operation> Read(const char* path) {
  std::vector<Operation> operations;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    char* rest = nullptr;
    size_t id = std::strtoull(line.c_str() + 1, &rest, 10);
    operations.push_back({id, line[0] == '+' ? std::strtoull(rest + 1, nullptr, 10) : 0});
  }
  return operations;
}

std::unique_ptr<tsl::BFCAllocator> Make(size_t limit, std::atomic<size_t>* peak) {
  tsl::BFCAllocator::Options options;
  options.allow_growth = true;
  options.allow_retry_on_failure = false;
  options.garbage_collection = true;
  return std::make_unique<tsl::BFCAllocator>(std::make_unique<Addresses>(peak), limit, "bfc", options);
}

void* Allocate(tsl::BFCAllocator* allocator, size_t bytes) {
  tsl::AllocationAttributes attributes(/*retry_on_failure=*/false, /*allocation_will_be_logged=*/false, nullptr);
  return allocator->AllocateRaw(64, bytes, attributes);
}

int Replay(const char* path, size_t limit, int rounds, int threads) {
  const std::vector<Operation> operations = Read(path);
  size_t n_ids = 0;
  for (const Operation& operation : operations) n_ids = std::max(n_ids, operation.id + 1);
  std::atomic<size_t> peak = 0, refused = 0, live_at_refusal = 0, live_peak = 0;
  std::unique_ptr<tsl::BFCAllocator> allocator = Make(limit, &peak);
  std::barrier barrier(threads);
  std::vector<double> nanos(threads, 1e18);
  auto work = [&](int thread) {
    std::vector<void*> chunks(n_ids, nullptr);
    std::vector<size_t> sizes(n_ids, 0);
    for (int round = 0; round <= rounds; ++round) {
      size_t live = 0;
      barrier.arrive_and_wait();
      const auto start = Clock::now();
      for (const Operation& operation : operations) {
        if (operation.bytes > 0) {
          chunks[operation.id] = Allocate(allocator.get(), operation.bytes);
          if (chunks[operation.id] == nullptr) {
            if (refused++ == 0) live_at_refusal = live;
          } else if (round == 0) {
            sizes[operation.id] = operation.bytes;
            live += operation.bytes;
            live_peak = std::max(live_peak.load(), live);
          }
        } else if (chunks[operation.id] != nullptr) {
          allocator->DeallocateRaw(chunks[operation.id]);
          chunks[operation.id] = nullptr;
          if (round == 0) live -= sizes[operation.id];
        }
      }
      barrier.arrive_and_wait();
      const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
      if (round > 0) nanos[thread] = std::min(nanos[thread], taken.count());
      for (void*& chunk : chunks) {
        if (chunk != nullptr) allocator->DeallocateRaw(chunk);
        chunk = nullptr;
      }
    }
  };
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) all.emplace_back(work, thread);
  for (std::thread& thread : all) thread.join();
  const double slowest = *std::max_element(nanos.begin(), nanos.end());
  std::printf("{\"peak_live\":%zu,\"peak_held\":%zu,\"refused\":%zu,\"full_at_first_refusal\":%.4f,\"ns_per_op\":%.1f}\n",
              live_peak.load() * threads, peak.load(), refused.load(),
              refused > 0 ? double(live_at_refusal) / double(limit) : 0.0,
              rounds > 0 ? slowest / double(operations.size() * threads) : 0.0);
  return 0;
}

int Grow(size_t bytes, size_t step) {
  std::atomic<size_t> peak = 0;
  std::unique_ptr<tsl::BFCAllocator> allocator = Make(bytes, &peak);
  std::vector<void*> chunks;
  double worst = 0;
  for (size_t done = 0; done + step <= bytes; done += step) {
    const auto start = Clock::now();
    void* chunk = Allocate(allocator.get(), step);
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    if (chunk == nullptr) break;
    worst = std::max(worst, taken.count());
    chunks.push_back(chunk);
  }
  std::printf("{\"worst_micros\":%.1f}\n", worst);
  for (void* chunk : chunks) allocator->DeallocateRaw(chunk);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && std::strcmp(argv[1], "replay") == 0) {
    return Replay(argv[2], std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]), std::atoi(argv[5]));
  }
  if (argc == 4 && std::strcmp(argv[1], "grow") == 0) {
    return Grow(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  }
  std::fprintf(stderr, "usage: bfc replay OPERATIONS LIMIT ROUNDS THREADS | bfc grow BYTES STEP\n");
  return 2;
}
