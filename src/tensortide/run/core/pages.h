// CPU memory of tensors while a budget is open, from pages of our own: as many of them are resident as tensors had at
// once, whatever the sizes of blocks. Where no free range is long enough for a block, pages of several are moved side by
// side, which takes a fortieth of the time in which the system maps new ones.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace tide {

// Once installed it stays: a block may be freed by the deleter of the allocator of that time, not of its own. It hands
// all blocks on to the allocator before it unless a budget is open, and small ones even then.
class Pages final : public c10::Allocator {
 public:
  static constexpr size_t PAGE = 4096;
  static constexpr size_t SMALL = 64 << 10; // smaller blocks would waste too much of their last page
  static constexpr size_t MOST_SEAMS = 8192; // of the 65,530 mappings that a process may have

  at::DataPtr allocate(size_t nbytes) override {
    if (open_ && nbytes >= SMALL && nbytes < SIZE_MAX - PAGE) {
      if (char* block = take((nbytes + PAGE - 1) / PAGE * PAGE)) {
        c10::profiledCPUMemoryReporter().New(block, nbytes);
        trim();
        return {block, block, &release, c10::Device(c10::kCPU)};
      }
    }
    at::DataPtr block = before_->allocate(nbytes);
    (void)block.compare_exchange_deleter(before_->raw_deleter(), &release);
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }

  void open() {
    if (!installed()) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    most_ = in_use_;
    trimmed_ = 0;
    open_ = !(FLAGS_caffe2_cpu_allocator_do_zero_fill || FLAGS_caffe2_cpu_allocator_do_junk_fill);
  }

  void close() {
    const std::lock_guard<std::mutex> guard(mutex_);
    open_ = false;
    discard_free();
  }

  struct Totals {
    size_t in_use, mapped, most, seams;
  };
  Totals totals() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return {in_use_, mapped_, most_.load(), seams_.size()};
  }

  static Pages& only() {
    static Pages* pages = new Pages; // never destroyed: tensors may outlive everything
    return *pages;
  }

 private:
  static void release(void* block) {
    if (!only().give(static_cast<char*>(block))) only().before_->raw_deleter()(block);
  }

  bool installed() {
    if (before_) return true;
    c10::Allocator* before = c10::GetCPUAllocator();
    if (!before->raw_deleter() || size_t(sysconf(_SC_PAGESIZE)) != PAGE) return false;
    pthread_atfork([] { only().mutex_.lock(); }, [] { only().mutex_.unlock(); }, [] { only().mutex_.unlock(); });
    before_ = before;
    for (int priority = 0; priority < 256 && c10::GetCPUAllocator() != this; ++priority) {
      c10::SetCPUAllocator(this, uint8_t(priority)); // the lowest that the one before gives way to
    }
    return true;
  }

  // Pages that other blocks have left in the heap go back to the system as often as these have become some more.
  void trim() {
    const size_t least = trimmed_ + std::max(trimmed_ / 16, size_t(4) << 20);
    if (most_ < least) return;
    trimmed_ = most_.load();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  }

  // A block of whole pages; null if the system has none left.
  char* take(size_t size) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto fit = sizes_.lower_bound({size, nullptr});
    char* block = fit != sizes_.end() ? cut(fit->second, size) : composed(size);
    if (!block && !sizes_.empty()) { // of addresses, say: those of free pages are some
      discard_free();
      block = composed(size);
    }
    if (!block) return nullptr;
    used_.emplace(block, size);
    in_use_ += size;
    if (in_use_ > most_) most_ = in_use_;
    return block;
  }

  // False if the block is not one of these.
  bool give(char* block) {
    if (block < lowest_ || block >= highest_) return false;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (!used_.count(block)) return false;
    }
    c10::profiledCPUMemoryReporter().Delete(block); // before another thread has the address
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = used_.find(block);
    const size_t size = found->second;
    used_.erase(found);
    in_use_ -= size;
    if (open_) {
      add_free(block, size);
    } else if (scattered()) {
      madvise(block, size, MADV_DONTNEED);
      add_free(block, size);
    } else {
      discard(block, size);
    }
    return true;
  }

  // Free ranges: no two are adjacent.

  void add_free(char* at, size_t size) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && next->first == at + size) {
      size += next->second;
      sizes_.erase({next->second, next->first});
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == at) {
        at = previous->first;
        size += previous->second;
        sizes_.erase({previous->second, at});
        free_.erase(previous);
      }
    }
    free_.emplace(at, size);
    sizes_.emplace(size, at);
  }

  // The first ``size`` bytes of a free range.
  char* cut(char* at, size_t size) {
    const auto found = free_.find(at);
    const size_t rest = found->second - size;
    sizes_.erase({found->second, at});
    free_.erase(found);
    if (rest) {
      free_.emplace(at + size, rest);
      sizes_.emplace(rest, at + size);
    }
    return at;
  }

  // A range that has the pages of free ranges, the longest first, and new ones if these do not suffice.
  char* composed(size_t size) {
    void* mapped = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* to = static_cast<char*>(mapped);
    if (!lowest_ || to < lowest_) lowest_ = to;
    if (to + size > highest_) highest_ = to + size;
    size_t done = 0;
    for (size_t left = size; left && !sizes_.empty();) {
      const auto longest = sizes_.rbegin();
      const size_t part = std::min(longest->first, left);
      left -= part;
      if (move(cut(longest->second, part), part, to, done)) continue;
      movable_ = false; // and nobody knows whose these addresses are now
      if (done) add_free(to, done);
      return composed(size);
    }
    if (done < size) {
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      if (mmap(to + done, size - done, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
        munmap(to + done, size - done);
        if (done) add_free(to, done);
        return nullptr;
      }
      seams_.insert(to + done);
      mapped_ += size - done;
    }
    return to;
  }

  // Puts pages behind the first ``done`` bytes at ``to``; false if the system fails to. Mappings may begin at seams, and
  // nowhere else; one is moved at a time. Short ones are not worth it, and would be ever more: new pages do as well.
  bool move(char* at, size_t size, char* to, size_t& done) {
    const size_t least = movable_ ? std::max(SMALL, mapped_ / MOST_SEAMS) : SIZE_MAX;
    for (char* const end = at + size; at < end;) {
      const auto seam = seams_.upper_bound(at);
      const size_t piece = size_t((seam == seams_.end() ? end : std::min(end, *seam)) - at);
      if (piece < least) {
        discard(at, piece);
      } else if (mremap(at, piece, piece, MREMAP_MAYMOVE | MREMAP_FIXED, to + done) == MAP_FAILED) {
        discard(at, size_t(end - at));
        return false;
      } else {
        forget(at, piece);
        seams_.insert(to + done);
        done += piece;
      }
      at += piece;
    }
    return true;
  }

  void discard(char* at, size_t size) {
    if (munmap(at, size)) madvise(at, size, MADV_DONTNEED); // too many mappings: the addresses are lost
    forget(at, size);
    mapped_ -= size;
  }

  // True if so many blocks are left that holes between them could be more mappings than a process may have.
  bool scattered() const { return used_.size() > MOST_SEAMS; }

  void discard_free() {
    if (scattered()) {
      for (const auto& [at, size] : free_) madvise(at, size, MADV_DONTNEED);
      return;
    }
    for (const auto& [at, size] : free_) discard(at, size);
    free_.clear();
    sizes_.clear();
  }

  // Nothing is mapped there any more; what follows is a mapping of its own.
  void forget(char* at, size_t size) {
    seams_.erase(seams_.lower_bound(at), seams_.lower_bound(at + size));
    if (used_.count(at + size) || free_.count(at + size)) seams_.insert(at + size);
  }

  std::mutex mutex_;
  std::atomic<bool> open_{false};
  bool movable_ = true;
  c10::Allocator* before_ = nullptr;
  std::atomic<char*> lowest_{nullptr}, highest_{nullptr}; // of all blocks so far
  std::map<char*, size_t> free_;
  std::set<std::pair<size_t, char*>> sizes_; // the same
  std::unordered_map<char*, size_t> used_;
  std::set<char*> seams_;
  size_t in_use_ = 0, mapped_ = 0;
  std::atomic<size_t> most_{0}, trimmed_{0}; // at once; when the heap was trimmed last
};

} // namespace tide
