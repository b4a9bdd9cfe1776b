// Which hardware metrics a profile asks for, tier by tier, and CUPTI's schedule for them on a chip.
// Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "target/cuda/cupti_api.h"

namespace cudaforge {

// The metrics of tiers 1 to `tier` for a chip as CUPTI names it ("GH100"); empty for tier 0.
// Passes that the work is replayed for, on GA100, GH100 and GB100 (others: see the test):
//   1 (1 pass): time, bytes of device memory, its throughput, achieved occupancy, issue slots
//   2 (2 passes): ... tensor instructions, hit rates of both caches
//   3 (4 passes): ... what warps wait for
//   4 (9, 13, 12 passes): ... throughput of the processors and of both caches
std::vector<std::string> TierMetrics(std::string_view chip, int tier);

// A set of metrics, scheduled. Move-only.
class MetricSchedule {
 public:
  // `availability`: the device's counter availability image, empty where there is no device.
  // Metrics that the chip does not have are left out: see refused(). kUnavailable when CUPTI does
  // not know the chip, or none of its metrics. `api` must outlive the result.
  static Result<MetricSchedule> Make(const cupti::CuptiApi& api, const std::string& chip,
                                     std::span<const uint8_t> availability,
                                     const std::vector<std::string>& metrics);

  const std::vector<std::string>& metrics() const { return metrics_; }
  const std::vector<std::string>& refused() const { return refused_; }
  size_t passes() const { return passes_; }
  std::span<const uint8_t> config() const { return config_; }
  // metrics() as C strings, which live as long as the schedule does.
  std::vector<const char*> names() const;
  // One value a metric, of the range `index` in a decoded counter data image.
  Result<std::vector<double>> Evaluate(std::span<const uint8_t> counter_data, size_t index) const;

 private:
  struct HostDeleter {
    HostDeleter() : api(nullptr) {}
    explicit HostDeleter(const cupti::CuptiApi* cupti) : api(cupti) {}
    const cupti::CuptiApi* api;
    void operator()(cupti::HostObject host) const;
  };
  using Host = std::unique_ptr<std::remove_pointer_t<cupti::HostObject>, HostDeleter>;

  static Result<Host> MakeHost(const cupti::CuptiApi& api, const std::string& chip,
                               std::span<const uint8_t> availability);
  static cupti::Result Add(const Host& host, const std::vector<std::string>& metrics);
  Status ReadConfig();

  MetricSchedule() = default;

  Host host_;
  std::vector<std::string> metrics_;
  std::vector<std::string> refused_;
  std::vector<uint8_t> config_;
  size_t passes_ = 0;
};

// For tests: every chip that CUPTI knows.
Result<std::vector<std::string>> CuptiChips(const cupti::CuptiApi& api);

}  // namespace cudaforge
