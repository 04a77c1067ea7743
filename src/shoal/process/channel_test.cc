#include "shoal/process/channel.h"

#include <gtest/gtest.h>

#include <string>

namespace shoal::process {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const os::Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

TEST(Channel, CarriesMessagesBothWays) {
  auto [parent, worker] = Channel::pair();
  ASSERT_EQ(parent.send(bytes_of("down")), os::SendOutcome::kSent);
  ASSERT_EQ(worker.send(bytes_of("up")), os::SendOutcome::kSent);
  os::Message message;
  ASSERT_EQ(worker.recv(message), os::RecvOutcome::kMessage);
  EXPECT_EQ(text_of(message), "down");
  ASSERT_EQ(parent.recv(message), os::RecvOutcome::kMessage);
  EXPECT_EQ(text_of(message), "up");
}

TEST(Channel, WhatWasSaidBeforeAnEndIsClosedIsStillReceived) {
  auto [parent, worker] = Channel::pair();
  ASSERT_EQ(worker.send(bytes_of("last words")), os::SendOutcome::kSent);
  EXPECT_FALSE(parent.hung_up());
  worker.close();
  EXPECT_TRUE(parent.hung_up());
  os::Message message;
  ASSERT_EQ(parent.recv(message), os::RecvOutcome::kMessage);
  EXPECT_EQ(text_of(message), "last words");
  EXPECT_EQ(parent.recv(message), os::RecvOutcome::kClosed);
  EXPECT_EQ(parent.send(bytes_of("?")), os::SendOutcome::kClosed);
}

TEST(Channel, AClosedEndIsClosedToItself) {
  auto [parent, worker] = Channel::pair();
  EXPECT_TRUE(parent);
  parent.close();
  EXPECT_FALSE(parent);
  os::Message message;
  EXPECT_EQ(parent.recv(message, os::Clock::now()), os::RecvOutcome::kClosed);
  EXPECT_EQ(parent.send(bytes_of("?")), os::SendOutcome::kClosed);
  EXPECT_TRUE(parent.hung_up());
}

}  // namespace
}  // namespace shoal::process
