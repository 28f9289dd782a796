// Requests to the API. Errors are problem documents; their detail is the sentence for the person.

import {byId} from "./dom.js";

const BASE = "/api/v1/";
const csrf = document.querySelector("meta[name=csrf-token]").content;

const role = document.body.dataset.role;
export const user = document.body.dataset.user;
export const mayWrite = role !== "viewer";

class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `The service answered with status ${status}.`);
    this.status = status;
    this.document = document;
  }
}

const LOST = {title: "no connection", detail: "The service cannot be reached. Your pending answers are kept in this browser."};
const SIGNED_OUT = {title: "signed out", detail: "You are signed out. Sign in again; your pending answers are kept in this browser."};

const request = async (method, path, {body, headers = {}} = {}) => {
  const options = {method, headers: {Accept: "application/json", ...headers}, credentials: "same-origin"};
  if (method !== "GET") options.headers["X-CSRF-Token"] = csrf;
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(BASE + path, options);
  } catch {
    throw new Problem(0, LOST);
  }
  const text = await answer.text();
  let document = {};
  try {
    document = text ? JSON.parse(text) : {};
  } catch {
    document = {detail: `The service answered with status ${answer.status}, and not with JSON.`};
  }
  if (answer.status === 401) throw new Problem(401, SIGNED_OUT);
  if (!answer.ok) throw new Problem(answer.status, document);
  return document;
};

export const get = (path, query = {}) => {
  const given = Object.entries(query).filter(([, one]) => one !== null && one !== undefined);
  const search = new URLSearchParams(given).toString();
  return request("GET", search ? `${path}?${search}` : path);
};
export const post = (path, body, headers = {}) => request("POST", path, {body, headers});
export const cancelJob = (id) => request("DELETE", `jobs/${encodeURIComponent(id)}`);
export const events = (id) => new EventSource(`${BASE}jobs/${encodeURIComponent(id)}/events`);
export const vertex = (id, what = "") => `vertices/${encodeURIComponent(id)}${what}`;

export const uniqueKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const signOut = async () => {
  await fetch("/signout", {method: "POST", headers: {"X-CSRF-Token": csrf}, redirect: "manual"});
  location.assign("/signin");
};
byId("sign-out")?.addEventListener("click", signOut);
