// The hardware metrics of each profiling tier, and CUPTI's schedule for them on a chip. Needs no
// GPU and no driver.
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

// The metrics of tiers 1 to `tier` for a chip by CUPTI's name ("GH100"); empty for tier 0. Number
// of replays on GA100, GH100 and GB100 (others: see the test):
//   1 (1 pass): time, bytes of device memory, its throughput, achieved occupancy, issue slots
//   2 (2 passes): ... tensor instructions, hit rates of both caches
//   3 (4 passes): ... stall reasons of warps
//   4 (9, 13, 12 passes): ... throughput of the processors and of both caches
std::vector<std::string> TierMetrics(std::string_view chip, int tier);

// A scheduled set of metrics. Move-only.
class MetricSchedule {
 public:
  // `availability`: the device's counter availability image, empty without a device. Metrics that
  // the chip lacks are left out: see refused(). kUnavailable: CUPTI does not know the chip, or none
  // of its metrics. `api` must outlive the result.
  static Result<MetricSchedule> Make(const cupti::CuptiApi& api, const std::string& chip,
                                     std::span<const uint8_t> availability,
                                     const std::vector<std::string>& metrics);

  const std::vector<std::string>& metrics() const { return metrics_; }
  const std::vector<std::string>& refused() const { return refused_; }
  size_t passes() const { return passes_; }
  std::span<const uint8_t> config() const { return config_; }
  // metrics() as C strings, valid as long as the schedule.
  std::vector<const char*> names() const;
  // One value a metric, of range `index` in a decoded counter data image.
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
